"""`memaudit import`: memories of a file, or an agent's own system, into a signed store. `sources`: what there is."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory_audit.counted import counted
from memory_audit.errors import AuditError, UsageError
from memory_audit.formats.import_jsonl import read_entries
from memory_audit.jobs.cli.shared import (
    DEFAULT_KEYS,
    FINDINGS,
    Json,
    Keys,
    PinFile,
    SourceOptions,
    Store,
    open_keyring,
    print_json,
    print_lines,
)
from memory_audit.jobs.clock import publisher_ms
from memory_audit.jobs.connect.address import JSONL, SYSTEMS, facts_of, parse_address, parse_options
from memory_audit.jobs.connect.connector import Export
from memory_audit.jobs.connect.import_source import import_source
from memory_audit.jobs.nightly.config import load_night
from memory_audit.jobs.store.alarms import alarm_line
from memory_audit.jobs.store.import_memories import import_entries, line_defaults
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.jobs.connect.import_source import SourceImport
    from memory_audit.jobs.nightly.config import Source
    from memory_audit.snapshot.known_entries import Compared

__all__ = ["import_", "sources"]

MAX_NAMED = 10
"""Lines of one kind."""


def import_(
    source: Annotated[
        str,
        typer.Argument(
            help="Where the memories are, SYSTEM:PLACE; `memaudit sources` lists the systems. jsonl:FILE is one JSON "
            "object per line; jsonl:- reads standard input."
        ),
    ],
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    tenant: Annotated[str | None, typer.Option(help="Tenant of memories that name none.")] = None,
    principal: Annotated[str, typer.Option(help="Writer of memories that name none.")] = "import",
    pin: PinFile = None,
    option: SourceOptions = None,
    *,
    new_only: Annotated[
        bool,
        typer.Option("--new-only", help="jsonl: leave out ids that the store has or had: for a dump of everything."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Sign memories into a store.

    Into a new one, or as the next version of an existing one. A system is only read, and what is new or was edited
    there is signed. What it lacks is told, and stays in the store; where that is half of a tenant, the exit code is 1.
    In a file an id is used once; with --new-only it may hold all memories every time. A file that was imported already,
    whole and as it is, changes nothing.
    """
    address = parse_address(source, parse_options(option or ()))
    if address.system == JSONL:
        if address.options:
            raise UsageError("--option: jsonl has none")
        _import_file(Path(address.place), store, keys, tenant, principal, pin, new_only=new_only, as_json=as_json)
        return
    if new_only:
        raise UsageError("--new-only is an option of jsonl: from a system only what is new is signed")
    opened = address.open()
    done = import_source(
        opened, str(address), store, open_keyring(keys), pin, tenant=tenant, principal=principal,
        now=publisher_ms(store),
    )  # fmt: skip
    told = list(opened.told()) if isinstance(opened, Export) else []
    if as_json:
        print_json({
            "version": done.snapshot.version, "digest": done.snapshot.digest, "schema": done.schema,
            "imported": len(done.new), "edited": _names((e.tenant, e.entry_id) for e in done.edited),
            "known": done.known, "removed": _names(done.removed), "gone": _names(done.gone),
            "unfit": list(done.unfit), "alarms": list(done.alarms), "told": told,
        })  # fmt: skip
    else:
        print_lines(
            *_told(done, str(address), store, is_export=isinstance(opened, Export)),
            *(f"  {as_line(line, 300)}" for line in told),
        )
    if done.alarms:
        raise typer.Exit(FINDINGS)


def _told(done: SourceImport, where: str, store: Path, *, is_export: bool) -> list[str]:
    fresh = [*done.new, *done.edited]
    memories, tenants = counted(len(fresh), "memory"), counted(len({e.tenant for e in fresh}), "tenant")
    lines = [f"{memories} of {tenants} signed into {store}, version {done.snapshot.version}"]
    if not fresh:
        lines = [f"nothing new for {store}, version {done.snapshot.version}"]
    if done.edited:
        lines.append(f"  {len(done.edited):,} of them edited in the source, each with its earlier text as its parent")
    if done.known:
        lines.append(f"  {counted(done.known, 'memory')} known and left as before")
    if done.removed:
        way = "--json names them: remove them in the product"
        if not is_export:
            way = f"memaudit purge RUN {store} --to {where} takes them out there"
        lines.append(
            f"  {counted(len(done.removed), 'memory')} left out: removed from the store or in quarantine, still in "
            f"{where}; {way}"
        )
    if done.gone:
        lines.append(f"  {counted(len(done.gone), 'memory')} gone from {where}, still in the store: --json names them")
    lines += (f"  left out: {as_line(line, 200)}" for line in done.unfit[:MAX_NAMED])
    return [*lines, *map(alarm_line, done.alarms)]


def _names(named: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"tenant": tenant, "entry_id": entry_id} for tenant, entry_id in named]


def _import_file(
    file: Path, store: Path, keys: Path, tenant: str | None, principal: str, pin: Path | None, *, new_only: bool,
    as_json: bool,
) -> None:  # fmt: skip
    now = publisher_ms(store)
    entries = read_entries(file, line_defaults(tenant, principal, now), once=True)
    if not entries:
        raise UsageError(f"{file}: no memories in it; nothing was written")
    done = import_entries(entries, store, open_keyring(keys), pin, new_only=new_only, now=now)
    found, made = done.found, done.snapshot if done.published is None else done.published
    if as_json:
        print_json({
            "version": made.version, "digest": made.digest, "imported": len(found.new), "known": found.known,
            "removed": _names(found.removed),
        })  # fmt: skip
    else:
        _show(found, store, made.version)


def _show(found: Compared, store: Path, version: int) -> None:
    lines = [f"nothing new for {store}, version {version}"]
    if found.new:
        memories, tenants = counted(len(found.new), "memory"), counted(len({e.tenant for e in found.new}), "tenant")
        lines = [f"{memories} of {tenants} signed into {store}, version {version}"]
    if found.known:
        lines.append(f"  {counted(found.known, 'memory')} known and left as before")
    if found.removed:
        lines.append(
            f"  {counted(len(found.removed), 'memory')} left out: removed from the store or in quarantine, still in "
            f"the file; ids: memaudit export {store} --removed, --quarantined"
        )
    print_lines(*lines)


def sources(
    config: Annotated[
        Path | None, typer.Argument(help="Configuration of a nightly job, whose sources are looked at.")
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """List memory systems, and the sources of a configuration.

    Of each system: the releases that it was read with, whose word its fields are, and where writes to it can be
    refused. Of each source in a configuration: what is there. Exit code 1: one of them cannot be read.
    """
    known = [_system(name) for name in sorted(SYSTEMS)]
    found = [] if config is None else [_source(source, config) for source in load_night(config).sources]
    if as_json:
        print_json({"systems": known, "sources": found})
    else:
        for system in known:
            print_lines(f"{system['name']}: {system.get('error') or system['written_for']}")
            if "error" not in system:
                vouched = ", ".join(f"{field} by {who}" for field, who in system["vouched"].items())
                print_lines(f"  vouched for: {vouched}", f"  guard point: {system['guard_point']}")
        print_lines(*(f"{as_line(one['source'], 200)}: {as_line(one['found'], 300)}" for one in found))
    if not all(one["readable"] for one in found):
        raise typer.Exit(FINDINGS)


def _system(name: str) -> dict[str, Any]:
    try:
        facts = facts_of(name)
    except UsageError as error:
        return {"name": name, "error": str(error)}
    return {
        "name": name, "written_for": facts.written_for, "vouched": dict(facts.vouched),
        "guard_point": facts.guard_point,
    }  # fmt: skip


def _source(source: Source, config: Path) -> dict[str, Any]:
    """Look at one configured source; paths are relative to the folder of the configuration."""
    with contextlib.chdir(config.absolute().parent):
        if source.file is not None:
            there = Path(source.file).exists()
            return {"source": f"{JSONL}:{source.file}", "readable": there, "found": "a file" if there else "missing"}
        try:
            found, readable = parse_address(source.system or "", source.options).open().schema(), True
        except AuditError as error:
            found, readable = str(error), False
    return {"source": source.system, "readable": readable, "found": found}
