"""Memories of which nobody recorded where they come from, one finding for each writer.

An agent's memory that names no parents is told by `memory_audit.lineage.trust`: a summary of a web page looks like a
thought of its own. An external memory without metadata says of nothing where it was read. Both are how most stores are
kept, so findings are for information: they say what lineage and the gate cannot tell apart in this store.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from memory_audit.lineage.trust import DEFAULT_TAU_PPM, TrustRules
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory

__all__ = ["NoProvenance"]

MAX_NAMED = 20
"""Memories of a writer that are named; all are counted."""

KINDS = {
    "no-parents": Kind(
        title="An agent's memories that name no parents",
        advice="Have the agent's runtime record which memories and documents it drew on (`Gate.stamp`).",
        severity="info",
        taxonomy=("ASI06", "AML.T0080.000"),
    ),
    "no-origin": Kind(
        title="External memories that say not where they come from",
        advice="Write the address of the document or tool into their metadata.",
        severity="info",
        taxonomy=("ASI06", "AML.T0070"),
    ),
}
MESSAGES = {
    "no-parents": "nobody recorded what this writer's memories were derived from",
    "no-origin": "nobody recorded where this writer's external memories were read",
}


class NoProvenance:
    """See the module."""

    name = "no-provenance"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset()
    alone = False  # one finding for all memories of a writer

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield at most one finding of each kind for each writer."""
        groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        for entry in entries:
            if kind := _lacks(entry):
                groups[entry.principal, kind].append(entry)
        written = Counter(entry.principal for entry in entries)
        for (writer, kind), lacking in groups.items():
            yield Finding(
                detector=self.name, kind=kind, tenant=memory.tenant, severity=KINDS[kind].severity,
                entry_ids=tuple(entry.entry_id for entry in lacking[:MAX_NAMED]),
                affected=len(lacking) if len(lacking) > MAX_NAMED else 0, message=MESSAGES[kind],
                evidence=(
                    Evidence(label="writer", value=writer),
                    Evidence(label="memories", value=f"{len(lacking)} of {written[writer]}"),
                ),
                key=hashlib.sha256(writer.encode()).hexdigest(),
            )  # fmt: skip


def _lacks(entry: Entry) -> str | None:
    if TrustRules().unrecorded_ppm(entry) >= DEFAULT_TAU_PPM:
        return "no-parents"
    if entry.source == "external" and not entry.parents and not entry.metadata:
        return "no-origin"
    return None
