"""An import: memories of a file are signed into a store, into a new one or as its next version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.places import check_outside_stores
from memory_audit.jobs.store.store_session import StoreSession, check_pin_place, remember
from memory_audit.snapshot.known_entries import Compared, all_signed, compared
from memory_audit.snapshot.layout import has_store, versions
from memory_audit.snapshot.pin import read_pin
from memory_audit.snapshot.publishing.publish import append_entries, create_store
from memory_audit.snapshot.reader import VerifiedSnapshot, open_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memory_audit.entry import Entry
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.publishing.publish import Published

__all__ = ["Imported", "import_entries", "line_defaults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import found and did."""

    found: Compared
    published: Published | None
    """None where there was nothing new."""

    snapshot: VerifiedSnapshot
    """The store afterwards; others may have published, too."""


def line_defaults(tenant: str | None, principal: str, at_ms: int) -> dict[str, object]:
    """Return what lines of a file mean that leave a field out (`memory_audit.formats.import_jsonl.read_entries`)."""
    defaults: dict[str, object] = {"principal": principal, "source": "external", "created_at_ms": at_ms}
    return defaults if tenant is None else defaults | {"tenant": tenant}


def import_entries(  # noqa: PLR0913 - what is imported, where to, and by whom
    entries: Sequence[Entry],
    store: Path,
    keyring: Keyring,
    pin: Path | None,
    *,
    new_only: bool,
    now: int,
) -> Imported:
    """Sign memories into a store, and remember what it shows then.

    Args:
        entries: At least one, each id of a tenant once.
        store: The folder of the store; one is made where there is none.
        keyring: Holds the writer and the log keys.
        pin: The file of --pin.
        new_only: Leave out ids that the store has or had.
        now: The publisher's clock, Unix milliseconds.

    Raises:
        UsageError: an id that the store has or had, with `new_only` one with another text; no place for a pin.
        VerificationError: the store does not verify, or shows less than this user saw before.
        StalePlanError: another process published first; nothing was written.
        IncompleteError: it stopped on the way; the same call finishes it.
    """
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
    return Imported(found=found, published=published, snapshot=snapshot)


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
