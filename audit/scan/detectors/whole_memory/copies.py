"""Copies and restatements: memories that say what an earlier one says (`memory_audit.consistency.restated`).

Copies are told once a group, not once a memory. The one that is kept is the first in the log, whose order nobody can
forge; `created_at_ms` is the writer's word. A group stays the same finding as long as that one stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memory_audit.counted import counted
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding, content_digest
from memory_audit.scan.group import excerpt, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory
    from memory_audit.scan.finding import Severity

__all__ = ["Copies"]

FLOOD = 10
"""Memories of a group from which it is more than repetition: the smallest community that `community_detection` of
sentence-transformers tells by default."""

KINDS = {
    "copies": Kind(
        title="Memories that say the same",
        advice="Keep the first one named, and remove the others once they have been read: together they crowd out "
        "what else a question would retrieve.",
        severity="info",
        taxonomy=("ASI06", "AML.T0080.000"),
    )
}


class Copies:
    """See the module."""

    name = "copies"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset({"vectors"})
    alone = False

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each group, in the order of the memories that are kept."""
        del entries  # groups are of the whole memory
        if memory.graph is None:
            return
        joined = memory.graph.restated
        order = np.argsort(joined, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(joined[order])) + 1):
            if len(group) > 1:
                yield self._finding(memory, group)

    def _finding(self, memory: ScannedMemory, group: NDArray[np.int64]) -> Finding:
        members = [memory.entries[place] for place in group.tolist()]
        kept = members[0]
        restated = [entry for entry in members if entry.text != kept.text]
        copies = len(members) - 1 - len(restated)
        told = ((copies, "word for word"), (len(restated), "in other words"))
        others = [f"{count:,} {how}" for count, how in told if count]
        ids, affected = named((entry.entry_id for entry in members), len(members))
        severity: Severity = "low" if len(members) >= FLOOD else "info"
        return Finding(
            detector=self.name, kind="copies", tenant=memory.tenant, entry_ids=ids, affected=affected,
            severity=severity, key=content_digest(kept),
            message=f"{counted(len(members), 'memory')} say the same: the first is kept; {', '.join(others)}",
            evidence=(
                excerpt("kept", kept),
                *(excerpt("restated", entry) for entry in restated[-1:]),
                Evidence(label="writers", value=f"{len({entry.principal for entry in members}):,}"),
            ),
        )  # fmt: skip
