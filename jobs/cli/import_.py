"""`memaudit import`: memories of a file, or of an agent's own system, into a signed store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import UsageError
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
from memory_audit.jobs.connect.address import JSONL, parse_address, parse_options
from memory_audit.jobs.connect.import_source import import_source
from memory_audit.jobs.store.import_memories import import_entries, line_defaults
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.jobs.connect.import_source import SourceImport
    from memory_audit.snapshot.known_entries import Compared

__all__ = ["import_"]

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
    done = import_source(
        address.open(), str(address), store, open_keyring(keys), pin, tenant=tenant, principal=principal,
        now=publisher_ms(store),
    )  # fmt: skip
    if as_json:
        print_json({
            "version": done.snapshot.version, "digest": done.snapshot.digest, "schema": done.schema,
            "imported": len(done.new), "edited": _names((e.tenant, e.entry_id) for e in done.edited),
            "known": done.known, "removed": _names(done.removed), "gone": _names(done.gone),
            "unfit": list(done.unfit), "alarms": list(done.alarms),
        })  # fmt: skip
    else:
        print_lines(*_told(done, str(address), store))
    if done.alarms:
        raise typer.Exit(FINDINGS)


def _told(done: SourceImport, where: str, store: Path) -> list[str]:
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
        lines.append(
            f"  {counted(len(done.removed), 'memory')} left out: removed from the store or in quarantine, still in "
            f"{where}; memaudit purge RUN {store} --to {where} takes them out there"
        )
    if done.gone:
        lines.append(f"  {counted(len(done.gone), 'memory')} gone from {where}, still in the store: --json names them")
    lines += (f"  left out: {line}" for line in done.unfit[:MAX_NAMED])
    for alarm in done.alarms:
        if "tenant" in alarm:
            lacks = f"{alarm['missing']:,} of {alarm['of']:,} memories of {_line(alarm['tenant'])}"
            lines.append(f"ALARM: {where} lacks {lacks}")
        elif "schema" in alarm:
            lines.append(f"ALARM: the schema was {_line(alarm['before'])}, and is {_line(alarm['schema'])}")
        else:
            lines.append(f"ALARM: {alarm['unfit']:,} memories break a rule of the store and were left out")
    return lines


def _line(value: object) -> str:
    return as_line(str(value))


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
