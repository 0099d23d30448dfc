"""`memaudit export`: what is left of the memory, and what is not, for whoever keeps memories elsewhere."""

from __future__ import annotations

import itertools
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.jobs.cli.shared import Reading, Store, as_signed, print_lines
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.places import check_folder, check_place
from memory_audit.jobs.spread_options import spread_options
from memory_audit.provenance import durable
from memory_audit.provenance.tlog.note import MAX_NOTE_BYTES
from memory_audit.snapshot.export_jsonl import memory_line, removed_line
from memory_audit.snapshot.layout import by_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["export"]


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
    tlog: Annotated[
        Path | None,
        typer.Option(help="Folder for one tenant's log in C2SP tiles instead: checkpoint, hashes, no text."),
    ] = None,
) -> None:
    """Write what is left in a store, or what is not.

    JSON lines, verified, in the form that `import jsonl:FILE` reads. With --removed one line for each id that your own
    database is to delete; with --quarantined, that it is to hide. With --tlog the files that a web server serves to any
    client of C2SP tlog-tiles, for proofs about the log.
    """
    if removed + quarantined + (tlog is not None) > 1:
        raise UsageError("--removed, --quarantined and --tlog: ask for one of them")
    place = None if out is None else check_place(out)
    session = reading.open(store, now_ms())
    snapshot = session.snapshot
    tenants = {as_signed(name, "--tenant") for name in tenant or snapshot.tenants}
    for unknown in tenants - snapshot.log_refs.keys():
        snapshot.log(unknown)  # says which there are, before anything is written
    if tlog is not None:
        if len(tenants) != 1 or out is not None:
            raise UsageError("--tlog: name one tenant with --tenant, and no --out")
        size = _write_log(snapshot, tenants.pop(), tlog)
        print_lines(f"log of {counted(size, 'leaf')} in version {snapshot.version} written to {tlog}")
        session.remember()
        return
    lines = _lines(snapshot, by_bucket(tenants), in_quarantine=quarantined if removed or quarantined else None)
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


def _write_log(snapshot: VerifiedSnapshot, tenant: str, folder: Path) -> int:
    """Write a verified log as a web server serves it (c2sp.org/tlog-tiles), the checkpoint last; return its leaves.

    Raises:
        UsageError: the folder holds anything but an earlier state of that log.
    """
    check_folder(folder)
    log, place = snapshot.log(tenant), folder / "checkpoint"
    if folder.is_dir() and any(folder.iterdir()):
        before = durable.read_bounded(place, MAX_NOTE_BYTES, str(place)) if place.exists() else b""
        if before.partition(b"\n")[0] != log.checkpoint.origin.encode():
            raise UsageError(f"{folder}: holds something else than this log; choose another folder")
    for path, tile in snapshot.bucket(snapshot.log_refs[tenant].bucket).tree(tenant).served():
        durable.ensure_folder((folder / path).parent)
        durable.replace(folder / path, tile)
    durable.replace(place, log.note)
    return log.checkpoint.size


def _lines(snapshot: VerifiedSnapshot, tenants: Iterable[str], *, in_quarantine: bool | None) -> Iterator[str]:
    """Write live memories; or with True what is in quarantine, and with False what was removed."""
    for name in tenants:
        if in_quarantine is None:
            yield from map(memory_line, snapshot.entries(name))
        else:
            stones = snapshot.tombstones(name)
            yield from (removed_line(stone) for stone in stones if stone.quarantines == in_quarantine)
