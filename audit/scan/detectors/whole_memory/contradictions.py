"""Memories that contradict their neighbours more than is usual: CAS above μ + 2σ of the store (MemAudit, eq. 8 and 9).

A memory is told where its CAS is unusual and NLI says of at least one pair that a contradiction is likelier than not.
Memories that are unusual and contradict each other are one finding. It is the same finding as long as the first of them
in the log stays in it: others may come and go. By how the threshold is made, some memories of any store lie above it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import networkx as nx

from memory_audit.consistency.graph import CONTRADICTION_WEIGHT
from memory_audit.counted import counted
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding, content_digest
from memory_audit.scan.group import excerpt, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.consistency.tenant_graph import TenantGraph
    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory

__all__ = ["Contradictions"]

MAX_PAIRS = 5
"""Pairs shown of one finding."""

KINDS = {
    "contradiction": Kind(
        title="Memories that contradict their neighbours",
        advice="Read the pairs, find out which side holds, and remove the other. Where an event went wrong over it, "
        "audit that event: a contradiction is no proof of harm.",
        severity="low",
        taxonomy=("ASI06", "AML.T0080.000"),
    )
}


class _Pair(NamedTuple):
    """Two memories that contradict each other, by their places, the unusual one first."""

    one: int
    other: int
    cosine: float
    weight: float


class Contradictions:
    """See the module."""

    name = "contradictions"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset({"graph"})
    alone = False

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each unusual memory, or group of those that contradict each other, in log order."""
        del entries  # what is usual depends on all
        graph = memory.graph
        if graph is None or graph.usual is None:
            return
        pairs = _unusual_pairs(graph, graph.usual.unusual)
        among: nx.Graph[int] = nx.Graph()
        among.add_nodes_from(sorted(pairs))
        among.add_edges_from((pair.one, pair.other) for own in pairs.values() for pair in own if pair.other in pairs)
        copies = dict(zip(graph.node_ids, graph.copies.tolist(), strict=True))
        for group in nx.connected_components(among):
            yield self._finding(memory, graph, {place: pairs[place] for place in sorted(group)}, copies)

    def _finding(
        self,
        memory: ScannedMemory,
        graph: TenantGraph,
        pairs: Mapping[int, list[_Pair]],
        copies: Mapping[str, int],
    ) -> Finding:
        """Make a finding of unusual memories, by their places in log order, with their pairs."""
        at = memory.entries
        worst_first = sorted(pairs, key=lambda place: (-len(pairs[place]), place))
        ids = [at[place].entry_id for place in worst_first]
        entry_ids, affected = named(ids, sum(copies[entry_id] for entry_id in ids))
        against = {pair.other for own in pairs.values() for pair in own}
        beside = counted(len(against - pairs.keys()), "neighbour")
        told = "contradicts" if len(pairs) == 1 else f"{counted(len(pairs), 'memory')} contradict each other, and"
        return Finding(
            detector=self.name, kind="contradiction", tenant=memory.tenant, entry_ids=entry_ids, affected=affected,
            severity="low", message=f"{told} {beside}: more than is usual here",
            evidence=tuple(_shown(memory, graph, pairs)), key=content_digest(at[next(iter(pairs))]),
        )  # fmt: skip


def _unusual_pairs(graph: TenantGraph, unusual: float) -> dict[int, list[_Pair]]:
    """Return by its place each memory above the threshold, with the pairs that contradict."""
    found: defaultdict[int, list[_Pair]] = defaultdict(list)
    for a, b, cosine, weight in graph.edges():
        if weight >= CONTRADICTION_WEIGHT:
            for one, other in ((a, b), (b, a)):
                if (graph.cas(one) or 0.0) > unusual:
                    place = graph.places[one]
                    found[place].append(_Pair(place, graph.places[other], cosine, weight))
    return found


def _shown(memory: ScannedMemory, graph: TenantGraph, pairs: Mapping[int, list[_Pair]]) -> Iterator[Evidence]:
    """Yield CAS and threshold, then the clearest pairs, each once: what both say, and how surely they contradict."""
    first = memory.entries[next(iter(pairs))].entry_id
    yield Evidence(label="CAS", value=f"{graph.cas(first) or 0.0:.3g}", entry_id=first)
    if graph.usual is not None:
        yield Evidence(label="unusual above", value=f"{graph.usual.unusual:.3g}")
    once = {tuple(sorted((pair.one, pair.other))): pair for own in pairs.values() for pair in reversed(own)}
    clearest = sorted(once.values(), key=lambda pair: (-round(pair.weight * pair.cosine, 6), pair.one, pair.other))
    for pair in clearest[:MAX_PAIRS]:
        yield excerpt("says", memory.entries[pair.one])
        yield excerpt("contradicts", memory.entries[pair.other])
        yield Evidence(label="NLI", value=f"{pair.weight:.2f}", entry_id=memory.entries[pair.other].entry_id)
