"""`memaudit import`: memories into a signed store, a new one or the next version."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.formats.import_jsonl import read_entries
from memory_audit.jobs.cli.shared import DEFAULT_KEYS, Json, Keys, PinFile, Store, open_keyring, print_json, print_lines
from memory_audit.jobs.clock import publisher_ms
from memory_audit.jobs.store.import_memories import import_entries, line_defaults

if TYPE_CHECKING:
    from memory_audit.snapshot.known_entries import Compared

__all__ = ["import_app"]

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
    done = import_entries(entries, store, open_keyring(keys), pin, new_only=new_only, now=now)
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
