"""Which memories of a dump a store does not have yet: for agents that hand over all of theirs every night."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_audit.errors import EntryError
from memory_audit.snapshot.layout import by_bucket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.entry import Entry
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Compared", "all_signed", "compared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A dump, held against a store."""

    new: tuple[Entry, ...]
    """In the order given."""

    known: int
    """Live in the store, with the same texts, and the same metadata where the dump has some."""

    removed: tuple[tuple[str, str], ...]
    """Tenant and entry id of what was removed from the store or is in quarantine, and is in the dump again."""


def compared(snapshot: VerifiedSnapshot, entries: Sequence[Entry]) -> Compared:
    """Tell new memories from those that the store has, or had.

    Args:
        snapshot: Verified.
        entries: An id once for each tenant.

    Raises:
        EntryError: an id of the store with another text or metadata.
        VerificationError: a tenant's log does not verify.
    """
    new, removed, known = set[tuple[str, str]](), list[tuple[str, str]](), 0
    for tenant, mine in _by_tenant(entries):
        there = tenant in snapshot.log_refs
        live = {entry.entry_id: entry for entry in snapshot.entries(tenant)} if there else {}
        gone = {tombstone.entry_id for tombstone in snapshot.tombstones(tenant)} if there else set()
        for entry in mine:
            name = tenant, entry.entry_id
            signed = live.get(entry.entry_id)
            if signed is not None:
                if _edited(signed, entry):
                    raise EntryError(
                        f"tenant {tenant!r:.80}: entry {entry.entry_id!r:.80} is not what was signed under that id: "
                        "ids are used once; give an edited memory an id of its own, with the old one as its parent"
                    )
                known += 1
            elif entry.entry_id in gone:
                removed.append(name)
            else:
                new.add(name)
    return Compared(
        new=tuple(entry for entry in entries if (entry.tenant, entry.entry_id) in new), known=known,
        removed=tuple(removed),
    )  # fmt: skip


def all_signed(snapshot: VerifiedSnapshot, entries: Sequence[Entry], now_ms: int) -> bool:
    """Tell whether a store has all of these entries live, as they are.

    Args:
        snapshot: Verified.
        entries: Of any tenants.
        now_ms: When those were made that did not say so: of these any time counts.

    Raises:
        VerificationError: a tenant's log does not verify.
    """
    for tenant, mine in _by_tenant(entries):
        if tenant not in snapshot.log_refs:
            return False
        live = {entry.entry_id: entry for entry in snapshot.entries(tenant)}
        for entry in mine:
            signed = live.get(entry.entry_id)
            at_ms = entry.created_at_ms
            if (
                signed is None
                or replace(entry, created_at_ms=signed.created_at_ms if at_ms == now_ms else at_ms) != signed
            ):
                return False
    return True


def _by_tenant(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    """Return each tenant's entries, in the order in which each file of a store is read once."""
    by_tenant: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_tenant[entry.tenant].append(entry)
    return [(tenant, by_tenant[tenant]) for tenant in by_bucket(by_tenant)]


def _edited(signed: Entry, entry: Entry) -> bool:
    """Tell whether an agent reads something else now; a dump may leave metadata out."""
    if (signed.request, signed.response) != (entry.request, entry.response):
        return True
    return bool(entry.metadata) and dict(signed.metadata) != dict(entry.metadata)
