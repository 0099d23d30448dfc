"""`memaudit keys` and `memaudit import`: keys, a trust policy, and a signed store to begin with."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer
from rich.console import Console

from audit.counted import counted
from audit.errors import UsageError
from audit.provenance.keys import POLICY_FILE, generate_keys, load_keyring, save_keyring
from audit.snapshot.layout import has_store
from audit.snapshot.publish import append_entries, create_store
from audit.snapshot.reader import open_snapshot
from jobs.cli_store import DEFAULT_KEYS, Json, Keys, PinFile, Store, known_pin, print_json, remember
from jobs.clock import now_ms
from jobs.import_jsonl import read_entries

__all__ = ["import_app", "keys_app"]

keys_app = typer.Typer(help="Keys and the trust policy.", no_args_is_help=True)
import_app = typer.Typer(help="Bring memories into a signed store.", no_args_is_help=True)


@keys_app.command("new")
def keys_new(
    folder: Annotated[Path, typer.Argument(help="New folder for the private keys and the policy.")] = DEFAULT_KEYS,
    name: Annotated[str, typer.Option(help="Name in the key ids, e.g. your organisation.")] = "memaudit",
) -> None:
    """Make the keys of each role, and the trust policy for readers.

    The roles are writer, log, auditor and root.
    """
    save_keyring(generate_keys(name), folder)
    console = Console(soft_wrap=True)
    console.print(f"keys in {folder} (private: keep them), policy for readers: {folder / POLICY_FILE}", markup=False)


@import_app.command("jsonl")
def import_jsonl(
    file: Annotated[Path, typer.Argument(help="Memories, one JSON object per line; - reads standard input.")],
    store: Store,
    keys: Keys = DEFAULT_KEYS,
    tenant: Annotated[str | None, typer.Option(help="Tenant of lines that name none.")] = None,
    principal: Annotated[str, typer.Option(help="Writer of lines that name none.")] = "import",
    pin: PinFile = None,
    *,
    as_json: Json = False,
) -> None:
    """Sign memories into a store.

    Into a new one, or as the next version of an existing one.
    """
    now = now_ms()
    defaults: dict[str, object] = {"principal": principal, "source": "external", "created_at_ms": now}
    if tenant is not None:
        defaults["tenant"] = tenant
    entries = read_entries(file, defaults, once=True)
    if not entries:
        raise UsageError(f"{file}: no memories in it; nothing was written")
    keyring = load_keyring(keys)
    if has_store(store):
        published = append_entries(store, entries, keyring, now_ms=now, pin=known_pin(store, pin, keyring.policy, now))
    else:
        published = create_store(store, entries, keyring, now_ms=now)
    snapshot = open_snapshot(store, keyring.policy, now_ms=now)
    remember(snapshot, pin)
    if as_json:
        print_json({"version": published.version, "digest": snapshot.digest, "imported": len(entries)})
    else:
        memories = counted(len(entries), "memory")
        tenants = counted(len({entry.tenant for entry in entries}), "tenant")
        Console(soft_wrap=True).print(
            f"{memories} of {tenants} signed into {store}, version {published.version}",
            markup=False, highlight=False,
        )  # fmt: skip
