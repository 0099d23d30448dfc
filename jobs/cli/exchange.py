"""`memaudit import`: memories into a signed store. `memaudit export`: what is left of them, and what is not."""

from __future__ import annotations

import itertools
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.formats.import_jsonl import read_entries
from memory_audit.jobs.cli.shared import (
    DEFAULT_KEYS,
    Json,
    Keys,
    PinFile,
    Reading,
    Store,
    as_signed,
    print_json,
    print_lines,
)  # fmt: skip
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.import_memories import import_entries, line_defaults
from memory_audit.jobs.places import check_place
from memory_audit.jobs.spread_options import spread_options
from memory_audit.provenance import durable
from memory_audit.provenance.keys import load_keyring
from memory_audit.snapshot.export_jsonl import memory_line, removed_line
from memory_audit.snapshot.layout import by_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_audit.snapshot.known_entries import Compared
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["export", "import_app"]

import_app = typer.Typer(help="Bring memories into a signed store.", no_args_is_help=True)


@import_app.command("jsonl")
def import_jsonl(
    file: Annotated[Path, typer.Argument(help="Memories, one JSON object per line; - reads standard input.")],
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    tenant: Annotated[str | None, typer.Option(help="Tenant of lines that name none.")] = None,
    principal: Annotated[str, typer.Option(help="Writer of lines that name none.")] = "import",
    pin: PinFile = None,
    *,
    new_only: Annotated[
        bool, typer.Option("--new-only", help="Leave out ids that the store has or had: for a dump of everything.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Sign memories into a store.

    Into a new one, or as the next version of an existing one. An id is used once; with --new-only a file may hold all
    memories every time, and only those that are new are signed. A file that was imported already, whole and as it is,
    changes nothing.
    """
    now = publisher_ms(store)
    entries = read_entries(file, line_defaults(tenant, principal, now), once=True)
    if not entries:
        raise UsageError(f"{file}: no memories in it; nothing was written")
    done = import_entries(entries, store, load_keyring(keys), pin, new_only=new_only, now=now)
    found, made = done.found, done.snapshot if done.published is None else done.published
    if as_json:
        print_json({
            "version": made.version, "digest": made.digest, "imported": len(found.new), "known": found.known,
            "removed": [{"tenant": tenant, "entry_id": entry_id} for tenant, entry_id in found.removed],
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


@spread_options
def export(
    *,
    store: Store,
    tenant: Annotated[list[str] | None, typer.Option("--tenant", help="Whose (repeatable); default: all.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
    reading: Reading,
    removed: Annotated[
        bool, typer.Option("--removed", help="What was removed instead: ids, reasons, times, no text.")
    ] = False,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="What is in quarantine instead: ids, reasons, times, no text.")
    ] = False,
) -> None:
    """Write what is left in a store, or what is not.

    JSON lines, verified, in the form that `import jsonl` reads. With --removed one line for each id that your own
    database is to delete; with --quarantined, that it is to hide.
    """
    if removed and quarantined:
        raise UsageError("--removed and --quarantined: ask for one of them")
    place = None if out is None else check_place(out)
    session = reading.open(store, now_ms())
    snapshot = session.snapshot
    tenants = {as_signed(name, "--tenant") for name in tenant or snapshot.tenants}
    for unknown in tenants - snapshot.log_refs.keys():
        snapshot.log(unknown)  # says which there are, before anything is written
    lines = _exported(snapshot, by_bucket(tenants), in_quarantine=quarantined if removed or quarantined else None)
    if place is None:
        for line in lines:
            print(line)  # noqa: T201 - scripts read it
    else:
        numbers = itertools.count()  # one is taken for each line, and none for the end
        durable.replace(place, (f"{line}\n".encode() for line, _ in zip(lines, numbers, strict=False)))
        noun = "removed id" if removed else "quarantined id" if quarantined else "memory"
        what = counted(next(numbers), noun)
        print_lines(f"{what} of version {snapshot.version} written to {out}")
    session.remember()


def _exported(snapshot: VerifiedSnapshot, tenants: Iterable[str], *, in_quarantine: bool | None) -> Iterator[str]:
    """Write live memories; or with True what is in quarantine, and with False what was removed."""
    for name in tenants:
        if in_quarantine is None:
            yield from map(memory_line, snapshot.entries(name))
        else:
            stones = snapshot.tombstones(name)
            yield from (removed_line(stone) for stone in stones if stone.quarantines == in_quarantine)
