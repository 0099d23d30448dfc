"""Memories that a newer one of the same subject contradicts: stale, where the newer one holds.

Two memories are of one subject where they are CLOSE, as texts are that say the same
(`memory_audit.consistency.restated`). The newer one is so by the order of the log and by the times that are stated, and
it is of the same writer and source: another's word makes nothing stale, and stays a contradiction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.consistency.graph import CONTRADICTION_WEIGHT
from memory_audit.consistency.restated import CLOSE
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding, content_digest
from memory_audit.scan.group import excerpt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory

__all__ = ["Superseded"]

KINDS = {
    "superseded": Kind(
        title="A memory that a newer one contradicts",
        advice="Read both, and remove the older one where the newer one holds.",
        severity="info",
    )
}


class Superseded:
    """See the module."""

    name = "superseded"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset({"graph"})
    alone = False

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each older memory, with the newest that contradicts it, in log order."""
        del entries  # a new memory makes an old one stale
        if memory.graph is None:
            return
        last = {entry.text: place for place, entry in enumerate(memory.entries)}  # what is said once more is not stale
        newest: dict[int, tuple[int, float]] = {}
        for a, b, cosine, weight in memory.graph.edges():
            if weight < CONTRADICTION_WEIGHT or cosine < CLOSE:
                continue
            older, newer = sorted(last[memory.entries[memory.graph.places[name]].text] for name in (a, b))
            if _replaces(memory.entries[newer], memory.entries[older]):
                newest[older] = max(newest.get(older, (-1, 0.0)), (newer, weight))
        for older, (newer, weight) in sorted(newest.items()):
            stale, fresh = memory.entries[older], memory.entries[newer]
            yield Finding(
                detector=self.name, kind="superseded", tenant=memory.tenant, entry_ids=(stale.entry_id, fresh.entry_id),
                severity="info", message="its writer said something else of the same subject later",
                evidence=(
                    excerpt("older", stale),
                    excerpt("newer", fresh),
                    Evidence(label="NLI", value=f"{weight:.2f}", entry_id=fresh.entry_id),
                ),
                key=content_digest(stale),
            )  # fmt: skip


def _replaces(newer: Entry, older: Entry) -> bool:
    same = (newer.principal, newer.source) == (older.principal, older.source)
    return same and newer.created_at_ms >= older.created_at_ms
