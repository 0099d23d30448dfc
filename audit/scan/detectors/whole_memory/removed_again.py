"""What a tombstone forbids and is there: under a removed id, in the same words, or, as the guard reads it, restated.

Ids and words need no model (`ScannedMemory.removed`). Restatements are those that the guard would refuse if they were
written now: they came before it was there. It judges each by itself: a refusal that is for the writer's other
writes, or for a failure, is none here. What brings one removed memory back in one way is one finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from memory_audit.counted import counted
from memory_audit.guard.decide.write import Write
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding
from memory_audit.scan.group import excerpt, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.blocks.tombstone import HazardTombstone
    from memory_audit.guard.guard import WriteGuard
    from memory_audit.scan.detector import Need, ScannedMemory

    _Found = tuple[HazardTombstone, "By", str]
    """Which removal, how it came back, and the guard's word."""

__all__ = ["RemovedAgain"]

BATCH = 256
"""Memories that a guard judges at once."""

By = Literal["removed-id", "removed-words", "removed-restated"]

_ADVICE = (
    "Remove it. Find out by which way it came back: a restored backup, a raw log, or a writer that the guard does not "
    "stand before."
)

KINDS: dict[str, Kind] = {
    "removed-id": Kind(
        title="A removed memory is there under its id",
        advice=_ADVICE,
        severity="high",
        taxonomy=("ASI06", "AML.T0080.000"),
    ),
    "removed-words": Kind(
        title="The words of a removed memory are there",
        advice=_ADVICE,
        severity="high",
        taxonomy=("ASI06", "AML.T0080.000"),
    ),
    "removed-restated": Kind(
        title="A memory teaches what a removed one taught",
        advice=f"Read it beside the record of the removal. {_ADVICE}",
        severity="medium",
        taxonomy=("ASI06", "AML.T0080.000"),
    ),
}


class RemovedAgain:
    """See the module."""

    name = "removed-again"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset({"guard", "outside"})
    alone = False

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each removal and way."""
        del entries  # a new tombstone forbids what is old
        removed = memory.removed if memory.guard is None else memory.guard.block_list
        if removed is None or not removed.stones:
            return
        found: dict[tuple[By, str], list[tuple[Entry, _Found]]] = {}
        for entry, item in _forbidden(memory.entries, removed, memory.guard):
            stone, by, _ = item
            found.setdefault((by, stone.tombstone.entry_id), []).append((entry, item))
        for by in get_args(By):
            for (_, removed_id), members in ((key, value) for key, value in found.items() if key[0] == by):
                first, (_, _, reason) = members[0]
                ids, affected = named((entry.entry_id for entry, _ in members), len(members))
                yield Finding(
                    detector=self.name, kind=by, tenant=memory.tenant, entry_ids=ids, affected=affected,
                    severity=KINDS[by].severity, message=f"{counted(len(members), 'memory')}: {reason}",
                    evidence=(Evidence(label="removed", value=removed_id), excerpt("text", first)), key=removed_id,
                )  # fmt: skip


def _forbidden(
    entries: Sequence[Entry], removed: BlockList, guard: WriteGuard | None
) -> Iterator[tuple[Entry, _Found]]:
    """Yield what is forbidden with the surest reason, in log order but for what the guard is asked about in batches."""
    doubtful: list[Entry] = []
    for entry in entries:
        if (number := removed.removed_id(entry.entry_id)) is not None:
            yield entry, (removed.stones[number], "removed-id", "removed id")
        elif (number := removed.by_fingerprint(Write(entry).prints(removed.salt))) is not None:
            yield entry, (removed.stones[number], "removed-words", "same words")
        elif guard is not None:
            doubtful.append(entry)
    for start in range(0, len(doubtful), BATCH):
        yield from _restated(doubtful[start : start + BATCH], guard)


def _restated(entries: Sequence[Entry], guard: WriteGuard | None) -> Iterator[tuple[Entry, _Found]]:
    if guard is None:
        return
    for entry, decision in zip(entries, guard.check_many(entries), strict=True):
        if decision.paraphrased and decision.tombstone is not None and not decision.with_earlier:
            yield entry, (decision.tombstone, "removed-restated", decision.reason)
