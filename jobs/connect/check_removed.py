"""Is what a store removed back in the system that it came from: its ids, its words, its behaviour.

Tombstones hold no text. Compared are ids, then keyed fingerprints of words (`memory_audit.guard.blocks.block_list`),
and, where a guard is given, what the guard says of the record as if it were written now. A record is told of once, by
the surest of the three.

A record under another id came back by a way of the system's own. Where the same text lies in side tables too, such as
mem0's raw messages, these are named with it: it will come from there again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal

from memory_audit.errors import EntryError
from memory_audit.guard.blocks.block_list import BlockList, read_block_list
from memory_audit.guard.decide.write import Write
from memory_audit.integrations.entries import base_of, entry_of, tenant_of, version_id, version_of
from memory_audit.jobs.connect.connector import MEMORIES, Removed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_audit.entry import Entry
    from memory_audit.guard.guarded_store import GuardedStore
    from memory_audit.integrations.record import Record
    from memory_audit.jobs.connect.connector import Source
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Checked", "Returned", "check_removed"]

BATCH = 256
"""Records that a guard judges at once."""

MAX_RETURNED = 10_000
"""Of one source that are named; more are counted."""

MAX_TRACED = 20
"""Of these whose text is looked for in side tables, each time in all of them."""

By = Literal["id", "text", "restated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A record that is, or brings back, what was removed."""

    tenant: str
    record_id: str
    """As the source has it."""

    by: By
    reason: str
    """The guard's word, such as `same words`."""

    removed_id: str | None
    """Entry id of the tombstone; None where the guard names none."""

    beside: Mapping[str, int] = field(default_factory=dict)
    """Side tables of the source whose rows hold the same text, and how many."""


@dataclass(slots=True, kw_only=True)
class Checked:
    """What was found in one source."""

    schema: str
    records: int = 0
    returned: list[Returned] = field(default_factory=list)
    more: int = 0
    """Returned beyond those."""

    unknown: int = 0
    """Records of tenants that the store does not have: only removals for all tenants hold for them."""

    ids_only: int = 0
    """Removals of the source's tenants that were made without a digest of words: only their ids were compared."""

    unjudged: int = 0
    """Records that no entry can be made of, or that the guard could not judge."""


class _Removals:
    """What of one tenant was removed."""

    def __init__(self, snapshot: VerifiedSnapshot, tenant: str, now_ms: int) -> None:
        self.known = tenant in snapshot.log_refs
        kept = (*snapshot.entries(tenant), *snapshot.quarantined(tenant)) if self.known else ()
        live = {entry.entry_id for entry in kept}
        gone = {stone.entry_id for stone in snapshot.tombstones(tenant)} - live if self.known else set()
        last: dict[str, int] = {}
        for base, version in map(version_of, live | gone):
            last[base] = max(version, last.get(base, 0))
        self.ids = {base: name for base, version in last.items() if (name := version_id(base, version)) not in live}
        self.words: BlockList = read_block_list(snapshot, tenant, embedder="", now_ms=now_ms)
        told = {stone.tombstone.entry_id for stone in self.words.stones if stone.block.fingerprints}
        self.ids_only = len(gone - told)

    def of_words(self, entry: Entry) -> str | None:
        """Return the entry id of the removal that has the words of this entry."""
        number = self.words.by_fingerprint(Write(entry).prints(self.words.salt))
        return None if number is None else self.words.stones[number].tombstone.entry_id


def check_removed(  # noqa: PLR0913 - what is checked, against what, and as whose
    source: Source,
    where: str,
    snapshot: VerifiedSnapshot,
    *,
    tenant: str | None,
    principal: str,
    now_ms: int,
    guarded: GuardedStore | None = None,
) -> Checked:
    """Look for what was removed among all records of a source.

    Args:
        source: Opened; nothing in it changes.
        where: Its address.
        snapshot: The store.
        tenant: Of records that name no owner, as at the import.
        principal: Of records that name no writer.
        now_ms: Unix milliseconds.
        guarded: Reads restatements; None compares ids and words alone.

    Raises:
        UsageError: a schema that the connector does not know.
        VerificationError: a log or a tombstone does not verify.
    """
    found = Checked(schema=source.schema())
    removals: dict[str, _Removals] = {}
    back: dict[str, Record] = {}

    def tell(record: Record, entry: Entry, by: By, reason: str, removed_id: str | None) -> None:
        if len(found.returned) >= MAX_RETURNED:
            found.more += 1
            return
        back[record.record_id] = record
        found.returned.append(
            Returned(tenant=entry.tenant, record_id=record.record_id, by=by, reason=reason, removed_id=removed_id)
        )

    def unheard() -> Iterator[tuple[Record, Entry]]:
        """Tell of ids and words; yield what is left to read."""
        for record in source.records():
            found.records += 1
            try:
                mine = tenant_of(record, tenant, where)
                entry = entry_of(record, tenant=mine, principal=principal, now_ms=now_ms, where=where)
            except EntryError:
                found.unjudged += 1
                continue
            if mine not in removals:
                removals[mine] = _Removals(snapshot, mine, now_ms)
                found.ids_only += removals[mine].ids_only
            held = removals[mine]
            found.unknown += not held.known
            if (name := held.ids.get(base_of(record.record_id))) is not None:
                tell(record, entry, "id", "removed id", name)
            elif (name := held.of_words(entry)) is not None:
                tell(record, entry, "text", "same words", name)
            elif held.known and len(held.words):
                yield record, entry

    left = unheard()
    while batch := list(islice(left, BATCH)):
        if guarded is None:
            continue
        for name in sorted({entry.tenant for _, entry in batch}):
            mine = [(record, entry) for record, entry in batch if entry.tenant == name]
            decisions = guarded.guard(name).check_many([entry for _, entry in mine])
            for (record, entry), decision in zip(mine, decisions, strict=True):
                if decision.failed:
                    found.unjudged += 1
                elif not decision.allowed:
                    stone = decision.tombstone
                    removed_id = None if stone is None else stone.tombstone.entry_id
                    tell(record, entry, "restated", decision.reason, removed_id)
    beside = _beside(source, back)
    found.returned = [replace(one, beside=beside.get(one.record_id, {})) for one in found.returned]
    return found


def _beside(source: Source, back: Mapping[str, Record]) -> dict[str, dict[str, int]]:
    """Return the side tables that hold the text of each record, where the source has such."""
    rows = getattr(source, "rows", None)
    if rows is None or not back:
        return {}

    def held(*texts: str) -> Counter[str]:
        looked = rows(Removed(records=(), texts_only=texts))
        return Counter(row.layer for row in looked if row.layer != MEMORIES and row.kept != row.raw)

    always = held()  # what goes whatever is removed, such as older versions
    return {
        name: dict(held(record.text, *record.spellings) - always) for name, record in islice(back.items(), MAX_TRACED)
    }
