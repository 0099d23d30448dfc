"""`memaudit import`: memories into a signed store."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.counted import counted
from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.formats.import_jsonl import read_entries
from memory_audit.jobs.cli.shared import DEFAULT_KEYS, Json, Keys, PinFile, Store, open_keyring, print_json, print_lines
from memory_audit.jobs.clock import now_ms, publisher_ms
from memory_audit.jobs.places import check_outside_stores
from memory_audit.jobs.store_session import StoreSession, check_pin_place, remember
from memory_audit.snapshot.known_entries import Compared, all_signed, compared
from memory_audit.snapshot.layout import has_store, versions
from memory_audit.snapshot.pin import read_pin
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.entry import Entry
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.publishing.publish import Published

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
    defaults: dict[str, object] = {"principal": principal, "source": "external", "created_at_ms": now}
    if tenant is not None:
        defaults["tenant"] = tenant
    entries = read_entries(file, defaults, once=True)
    if not entries:
        raise UsageError(f"{file}: no memories in it; nothing was written")
    keyring = open_keyring(keys)
    keyring.signers("log")  # whatever keeps a key locked is told before anything is written
    for writer in {entry.principal for entry in entries}:
        keyring.writer_for(writer)
    check_pin_place(pin)
    found = Compared(new=tuple(entries), known=0, removed=())
    published: Published | None = None
    if has_store(store):
        session = StoreSession.open(store, keyring.policy, pin, now_ms=now, check_expiry=False)
        if new_only:
            found = compared(session.snapshot, entries)
        if found.new:
            found, published = _appended(session, found, entries, keyring, now)
    else:
        check_outside_stores(store)
        _check_not_gone(store, pin)
        published = create_store(store, found.new, keyring, now_ms=now)
    snapshot = open_snapshot(store, keyring.policy, now_ms=now_ms(), check_expiry=published is not None)
    remember(snapshot, pin, published=None if published is None else published.version)
    made = snapshot if published is None else published
    if as_json:
        print_json({
            "version": made.version, "digest": made.digest, "imported": len(found.new), "known": found.known,
            "removed": [{"tenant": tenant, "entry_id": entry_id} for tenant, entry_id in found.removed],
        })  # fmt: skip
    else:
        _show(found, store, made.version)


def _check_not_gone(store: Path, pin: Path | None) -> None:
    """Refuse to make a store where one was seen.

    Raises:
        VerificationError: the pin is of a store, and there is none.
    """
    if pin is not None and (known := read_pin(pin)) is not None:
        raise VerificationError(
            f"pin {pin}: remembers version {known.version} of store {known.store_id}, and {store} holds none: "
            "it is gone, or --pin names the wrong file"
        )


def _appended(
    session: StoreSession, found: Compared, entries: Sequence[Entry], keyring: Keyring, now: int
) -> tuple[Compared, Published | None]:
    """Publish what is new; where all of it is there as it is, an earlier start of the same command did."""
    base = session.snapshot
    try:
        return found, append_entries(base.path, found.new, keyring, now_ms=now, pin=session.known)
    except UsageError:
        if all_signed(base, entries, now):
            return Compared(new=(), known=len(entries), removed=()), None
        if versions(base.path)[-1] > base.version:  # the ids may be those of somebody else who was faster
            raise StalePlanError(f"{base.path}: someone else published meanwhile; start again") from None
        raise


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
