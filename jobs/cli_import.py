"""`memaudit import`: memories into a signed store."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer
from rich.console import Console

from audit.counted import counted
from audit.errors import UsageError
from audit.provenance.keys import load_keyring
from audit.snapshot.layout import has_store
from audit.snapshot.publish import append_entries, create_store
from audit.snapshot.reader import open_snapshot
from jobs.cli_store import DEFAULT_KEYS, Json, Keys, PinFile, Store, known_pin, print_json, remember
from jobs.clock import now_ms
from jobs.import_jsonl import read_entries
from jobs.known_entries import Compared, compared

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
    memories every time, and only those that are new are signed.
    """
    now = now_ms()
    defaults: dict[str, object] = {"principal": principal, "source": "external", "created_at_ms": now}
    if tenant is not None:
        defaults["tenant"] = tenant
    entries = read_entries(file, defaults, once=True)
    if not entries:
        raise UsageError(f"{file}: no memories in it; nothing was written")
    keyring = load_keyring(keys)
    found = Compared(new=tuple(entries), known=0, removed=())
    if has_store(store):
        known = known_pin(store, pin, keyring.policy, now)
        if new_only:
            base = open_snapshot(store, keyring.policy, now_ms=now, pin=known, check_expiry=False)
            found = compared(base, entries)
        if found.new:
            append_entries(store, found.new, keyring, now_ms=now, pin=known)
    else:
        create_store(store, found.new, keyring, now_ms=now)
    snapshot = open_snapshot(store, keyring.policy, now_ms=now, check_expiry=bool(found.new))
    remember(snapshot, pin)
    if as_json:
        print_json({
            "version": snapshot.version, "digest": snapshot.digest, "imported": len(found.new), "known": found.known,
            "removed": [{"tenant": tenant, "entry_id": entry_id} for tenant, entry_id in found.removed],
        })  # fmt: skip
    else:
        _show(found, store, snapshot.version)


def _show(found: Compared, store: Path, version: int) -> None:
    lines = [f"nothing new for {store}, version {version}"]
    if found.new:
        memories, tenants = counted(len(found.new), "memory"), counted(len({e.tenant for e in found.new}), "tenant")
        lines = [f"{memories} of {tenants} signed into {store}, version {version}"]
    if found.known:
        lines.append(f"  {counted(found.known, 'memory')} known and left as before")
    if found.removed:
        lines.append(
            f"  {counted(len(found.removed), 'memory')} left out: removed from the store, still in the file; "
            f"ids: memaudit export {store} --removed"
        )
    console = Console(soft_wrap=True)
    for line in lines:
        console.print(line, markup=False, highlight=False)
