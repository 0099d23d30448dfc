"""External text that became an agent's own: over recorded parents, or said again with none recorded.

1. `derived-untrusted`: its writer is trusted, and lineage leads to it from a memory whose writer is not, or that was
   removed (`memory_audit.lineage.dag`). What came from one such memory is one finding.
2. `unrecorded-origin`: a memory of the agent's says what such a one said before it
   (`memory_audit.consistency.restated`), and names no parent. Nothing but its words tells where it came from.

Whose writer is trusted, `TrustRules` say: by default users and the agent, and no tool or web page. Both are the same
findings as long as that first memory stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.entry import PARTS_PER_MILLION
from memory_audit.lineage.dag import PATH_STEPS
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding, content_digest
from memory_audit.scan.group import excerpt, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.lineage.dag import Lineage
    from memory_audit.lineage.trust import TrustRules
    from memory_audit.scan.detector import Need, ScannedMemory

__all__ = ["Laundered"]

KINDS = {
    "derived-untrusted": Kind(
        title="A summary that draws on external text",
        advice="Read the external memory at the beginning of the path. Where it should not speak for the agent, remove "
        "it with what derives from it, or have the gate refuse what it justifies.",
        severity="low",
        taxonomy=("ASI06", "AML.T0080.000"),
    ),
    "unrecorded-origin": Kind(
        title="External text that the agent says again as its own",
        advice="Have the agent's runtime record parents, and remove what should not be trusted: without parents no "
        "label tells where this came from.",
        severity="medium",
        taxonomy=("ASI06", "AML.T0080.000"),
    ),
}


class Laundered:
    """See the module."""

    name = "laundered"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset({"vectors", "lineage"})
    alone = False

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each external memory and way, in log order."""
        del entries  # parents and likenesses are among all
        if memory.lineage is not None:
            yield from self._derived(memory, memory.lineage)
            if memory.graph is not None:
                yield from self._said_again(memory, memory.lineage.rules, memory.graph.restated.tolist())

    def _derived(self, memory: ScannedMemory, lineage: Lineage) -> Iterator[Finding]:
        by_id = {entry.entry_id: entry for entry in memory.entries}
        drawn: dict[str, list[Entry]] = {}
        for entry in memory.entries:
            if entry.entry_id in lineage and lineage.label(entry.entry_id) == "derived-untrusted":
                root = lineage.path(entry.entry_id, PATH_STEPS)[0].entry_id
                drawn.setdefault(root, []).append(entry)
        for root, summaries in drawn.items():
            outside = by_id.get(root)
            if outside is not None and lineage.rules.distrust_writer(outside) is None:
                continue  # an agent's own thought with no parents recorded
            ids, affected = named((entry.entry_id for entry in summaries), len(summaries))
            gone = ", which was removed" if lineage.is_removed(root) else ""
            yield Finding(
                detector=self.name, kind="derived-untrusted", tenant=memory.tenant, entry_ids=ids, affected=affected,
                severity="low",
                message=f"{counted(len(summaries), 'memory')} by trusted writers: drawn from an external one{gone}",
                evidence=(
                    *_path(lineage, summaries[0]),
                    *(excerpt("external", entry) for entry in (outside,) if entry is not None),
                    excerpt("summary", summaries[0]),
                ),
                key=root if outside is None else content_digest(outside),
            )  # fmt: skip

    def _said_again(self, memory: ScannedMemory, rules: TrustRules, joined: Sequence[int]) -> Iterator[Finding]:
        outside: dict[int, Entry] = {}
        again: dict[int, list[Entry]] = {}
        for entry, kept in zip(memory.entries, joined, strict=True):
            if rules.distrust_writer(entry) is not None:
                outside.setdefault(kept, entry)
            elif entry.source == "agent" and not entry.parents and kept in outside:
                again.setdefault(kept, []).append(entry)
        for kept, said in again.items():
            ids, affected = named((entry.entry_id for entry in said), len(said))
            yield Finding(
                detector=self.name, kind="unrecorded-origin", tenant=memory.tenant, entry_ids=ids, affected=affected,
                severity="medium",
                message=f"{counted(len(said), 'memory')} of the agent: what an external one said before, with no "
                "parent recorded",
                evidence=(excerpt("external", outside[kept]), excerpt("agent", said[0])),
                key=content_digest(outside[kept]),
            )  # fmt: skip


def _path(lineage: Lineage, entry: Entry) -> Iterator[Evidence]:
    for step in lineage.path(entry.entry_id, PATH_STEPS):
        told = "removed" if step.removed else step.label
        share = "" if step.weight_ppm is None else f", draws {step.weight_ppm / PARTS_PER_MILLION:.0%}"
        left_out = f" after {counted(step.left_out, 'step')} not shown" if step.left_out else ""
        yield Evidence(label="path", value=f"{told}{share}{left_out}", entry_id=step.entry_id)
