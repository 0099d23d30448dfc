"""`memaudit export`: what is left of the memory, and what to delete, for whoever keeps memories elsewhere."""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from audit.counted import counted
from audit.errors import IncompleteError
from audit.snapshot.reader import open_snapshot
from jobs.cli_store import (
    DEFAULT_KEYS,
    Keys,
    PinFile,
    Store,
    Trust,
    check_place,
    installed_policy,
    known_pin,
    remember,
)
from jobs.clock import now_ms
from jobs.export_jsonl import memory_line, removed_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from audit.snapshot.reader import VerifiedSnapshot

__all__ = ["export"]


def export(
    store: Store,
    tenant: Annotated[list[str] | None, typer.Option("--tenant", help="Whose (repeatable); default: all.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; default: standard output.")] = None,
    keys: Keys = DEFAULT_KEYS,
    trust: Trust = None,
    pin: PinFile = None,
    *,
    removed: Annotated[
        bool, typer.Option("--removed", help="What was removed instead: ids, reasons, times, no text.")
    ] = False,
) -> None:
    """Write what is left in a store, or what was removed.

    JSON lines, verified, in the form that `import jsonl` reads. With --removed one line for each id that your own
    database is to delete.
    """
    if out is not None:
        check_place(out)
    now, policy = now_ms(), installed_policy(keys, trust)
    snapshot = open_snapshot(store, policy, now_ms=now, pin=known_pin(store, pin, policy, now))
    lines = _lines(snapshot, sorted(set(tenant)) if tenant else snapshot.tenants, removed=removed)
    if out is None:
        for line in lines:
            print(line)  # noqa: T201 - scripts read it
    else:
        written = _write(lines, out)
        what = counted(written, "removed id" if removed else "memory")
        Console(soft_wrap=True).print(
            f"{what} of version {snapshot.version} written to {out}", markup=False, highlight=False
        )
    remember(snapshot, pin)


def _lines(snapshot: VerifiedSnapshot, tenants: Sequence[str], *, removed: bool) -> Iterator[str]:
    refs = snapshot.log_refs
    order = sorted(tenants, key=lambda name: (refs[name].bucket if name in refs else -1, name))  # each file once
    for name in order:
        if removed:
            yield from map(removed_line, snapshot.tombstones(name))
        else:
            yield from map(memory_line, snapshot.entries(name))


def _write(lines: Iterator[str], out: Path) -> int:
    """Write a file whole or not at all, as long as the store may be."""
    partial, count = out.with_name(f"{out.name}.partial"), 0
    try:
        with partial.open("w", encoding="ascii", newline="\n") as file:
            for count, line in enumerate(lines, start=1):  # noqa: B007 - the last count is the whole
                file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(out)
    except OSError as error:
        raise IncompleteError(f"{out}: cannot be written ({error.strerror}); nothing is there") from None
    finally:
        partial.unlink(missing_ok=True)
    return count
