"""The derivation DAG of one tenant: who was drawn on for what, and the trust label that follows.

Max-of-strong-edges (arXiv 2605.14421, known here by its review): an edge is *strong* if its weight is at least τ. An
entry's label is the worst of its own base label and what its strong parents hand on:

    external           its base label is external (`audit.lineage.trust`), or it was removed
    derived-untrusted  otherwise, if some path of strong edges leads to it from an external entry
    trusted            otherwise

Untrusted-Path Persistence is then a theorem, not a hope: along any chain whose edges stay at or above τ, no number of
steps makes an external ancestor harmless. The review draws strong edges as w > τ; here w = τ is strong too, the careful
reading. What the rule cannot see, and the review's own ablation shows: an edge below τ hands on nothing, so lineage is
as good as its weights, and many weak edges from several external parents do not add up.

Edges lead only to entries that came earlier, so there are no cycles to search for: an unknown, later or foreign parent
is refused at the append, and a label never changes afterwards, except by a removal. An append costs its edges.

Removal keeps the node and its edges and makes it external: lineage through a removed entry does not vanish. A DAG built
after the removal knows only the id (the tombstone keeps no parents) and comes to the same labels.

Plain arrays hold the graph, 16 bytes an edge: a networkx graph of a million edges takes 5 to 13 times as much
(measured by `benchmarks/lineage`), and nothing here walks more than parents and children. `to_networkx` is for reports.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from audit.entry import PARTS_PER_MILLION
from audit.errors import EntryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from audit.entry import Entry
    from audit.lineage.trust import TrustLabel, TrustRules

__all__ = ["DEFAULT_TAU_PPM", "PATH_STEPS", "Descendant", "Lineage", "PathStep"]

DEFAULT_TAU_PPM = 200_000
"""τ: an equal share of five retrieved memories, the k of both papers' agents, is still a strong edge."""

PATH_STEPS = 8
"""Steps of a path that a decision or a recall lists: what either costs must not grow with the age of a chain."""

_NO_EDGES: Mapping[str, int] = MappingProxyType({})

_NONE = 0xFFFF_FFFF
"""No edge, or no external ancestor, in an unsigned 32-bit array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One entry on a justifying path."""

    entry_id: str
    label: TrustLabel
    removed: bool
    weight_ppm: int | None
    """Weight of the edge from the step before; None for the first step, the external ancestor."""

    left_out: int = 0
    """Steps between the one before and this one that are not listed; the weight is then of the edge from the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descendant:
    """An entry reached over strong edges from one of the entries asked about."""

    entry_id: str
    seed: str
    """The entry asked about that it descends from, by fewest edges."""

    parent: str
    """The last step before it."""

    weight_ppm: int
    steps: int


class Lineage:
    """Entries of one tenant, their derivation edges and labels; grows by `append`, one entry at a time.

    Args:
        tenant: Entries of others are refused.
        rules: Base labels.
        tau_ppm: τ in parts per million: edges of at least this weight are strong.
    """

    def __init__(self, tenant: str, rules: TrustRules, tau_ppm: int = DEFAULT_TAU_PPM) -> None:
        if not 0 <= tau_ppm <= PARTS_PER_MILLION:
            raise UsageError(f"tau_ppm is {tau_ppm}, expected 0 to {PARTS_PER_MILLION}")
        self.tenant = tenant
        self.rules = rules
        self.tau_ppm = tau_ppm
        self._ids: list[str] = []
        self._index: dict[str, int] = {}
        self._base_external = bytearray()
        self._removed = bytearray()
        self._hops = array("I")  # per node: fewest strong edges from an external entry; 0 is external itself
        self._witness = array("I")  # per node: the last edge of that shortest path
        self._root = array("I")  # per node: the external entry where that path begins
        self._edges_from = array("I", [0])  # edges of node i: _edges_from[i] to _edges_from[i + 1]
        self._newest_child_edge = array("I")  # per node: head of the list of edges to its children
        self._edge_parent = array("I")
        self._edge_child = array("I")
        self._edge_weight = array("I")
        self._edge_next = array("I")  # the edge before this one to another child of the same parent

    @classmethod
    def of(cls, tenant: str, entries: Iterable[Entry], rules: TrustRules, tau_ppm: int = DEFAULT_TAU_PPM) -> Lineage:
        """Build a DAG from entries in the order they were appended.

        Raises:
            EntryError: like `append`.
        """
        lineage = cls(tenant, rules, tau_ppm)
        for entry in entries:
            lineage.append(entry)
        return lineage

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._index

    @property
    def edges(self) -> int:
        """Number of derivation edges."""
        return len(self._edge_parent)

    def append(self, entry: Entry, estimated: Mapping[str, int] = _NO_EDGES) -> TrustLabel:
        """Add an entry with its edges and return its label. Nothing is added if it is refused.

        Args:
            entry: The next in the order of the log.
            estimated: Weights in parts per million of edges that nobody signed, by parent; the heavier counts where the
                entry names that parent too. How many parents an entry may sign is no limit here.

        Raises:
            EntryError: another tenant's, an id that is or was there, or a parent that is no earlier entry.
        """
        where = f"tenant {self.tenant!r:.80}: entry {entry.entry_id!r:.80}"
        if entry.tenant != self.tenant:
            raise EntryError(f"{where} is of tenant {entry.tenant!r:.80}: lineage stays within one tenant")
        index = self._index
        if entry.entry_id in index:
            raise EntryError(f"{where} is or was there already: entry ids are used once")
        weights = {parent.entry_id: parent.weight_ppm for parent in entry.parents}
        for name, weight in estimated.items():
            weights[name] = max(weight, weights.get(name, 0))
        parents = []
        for name in weights:
            position = index.get(name)
            if position is None:
                raise EntryError(f"{where} names parent {name!r:.80}, which is no earlier entry (unknown, or a cycle)")
            parents.append(position)
        node = self._add_node(entry.entry_id, external=self.rules.base_label(entry) == "external", removed=False)
        for position, weight in zip(parents, weights.values(), strict=True):
            edge = len(self._edge_parent)
            self._edge_parent.append(position)
            self._edge_child.append(node)
            self._edge_weight.append(weight)
            self._edge_next.append(self._newest_child_edge[position])
            self._newest_child_edge[position] = edge
        self._edges_from[node + 1] += len(parents)
        self._judge(node)
        return self._label(node)

    def append_removed(self, entry_id: str) -> None:
        """Add an entry of which only the tombstone is left: an external node without parents.

        Raises:
            EntryError: the id is there already.
        """
        if entry_id in self._index:
            raise EntryError(f"tenant {self.tenant!r:.80}: removed entry {entry_id!r:.80} is there already")
        self._judge(self._add_node(entry_id, external=True, removed=True))

    def remove(self, entry_id: str) -> None:
        """Mark an entry removed: it stays as an external node, and its strong descendants are relabelled.

        Raises:
            UsageError: no such entry.
        """
        self.remove_all([entry_id])

    def remove_all(self, entry_ids: Iterable[str]) -> None:
        """Mark entries removed, at the cost of one: of a chain that goes as a whole, each would relabel the rest.

        Raises:
            UsageError: no such entry; none is marked then.
        """
        waiting = [node for node in map(self._node, entry_ids) if not self._removed[node]]
        for node in waiting:
            self._removed[node] = 1
        heapify(waiting)  # in order of append, so that every node is judged after all its parents
        while waiting:
            node = heappop(waiting)
            while waiting and waiting[0] == node:
                heappop(waiting)
            before = self._hops[node], self._root[node]
            self._judge(node)
            if (self._hops[node], self._root[node]) != before:
                for edge in self._child_edges(node):
                    if self._edge_weight[edge] >= self.tau_ppm:
                        heappush(waiting, self._edge_child[edge])

    def label(self, entry_id: str) -> TrustLabel:
        """Label of an entry. Raises UsageError where there is none of that id."""
        node = self._index.get(entry_id)
        return self._label(self._node(entry_id) if node is None else node)

    def is_removed(self, entry_id: str) -> bool:
        """Tell whether an entry was removed. Raises UsageError where there is none of that id."""
        return bool(self._removed[self._node(entry_id)])

    def path(self, entry_id: str, most: int | None = None) -> tuple[PathStep, ...]:
        """Return the evidence for a label: the shortest strong path from an external ancestor to the entry.

        Of several shortest ones the path whose last edge is heaviest, then the parent named first: the same from any
        order of building. Empty for a trusted entry. Raises UsageError where there is none of that id.

        Args:
            entry_id: Where it ends.
            most: Steps to return, at least 2: of a longer path the first and the last ones; None for all of them.
        """
        node = self._node(entry_id)
        hops = self._hops[node]
        if hops == _NONE:
            return ()
        left_out = 0 if most is None else max(hops + 1 - most, 0)
        steps: list[PathStep] = []
        for remaining in range(hops - left_out, 0, -1):
            steps.append(self._step(node, left_out if remaining == 1 else 0))
            node = self._edge_parent[self._witness[node]]
        steps.append(self._step(self._root[node]))
        return tuple(reversed(steps))

    def witness(self, entry_id: str) -> tuple[str, int] | None:
        """Return the parent and the weight in parts per million of the last edge of `path`; None where it has none.

        Raises UsageError where there is no entry of that id.
        """
        edge = self._witness[self._node(entry_id)]
        return None if edge == _NONE else (self._ids[self._edge_parent[edge]], self._edge_weight[edge])

    def strong_descendants(self, entry_ids: Iterable[str]) -> tuple[Descendant, ...]:
        """Return live entries that strong edges reach from `entry_ids`, those themselves left out, in append order.

        The reducer's closure: what was derived from an entry that goes should go, or be judged, with it. Removed
        entries are walked through and not returned.

        Raises:
            UsageError: no such entry.
        """
        seeds = {self._node(entry_id) for entry_id in entry_ids}
        reached: dict[int, tuple[int, int, int]] = dict.fromkeys(seeds, (0, 0, 0))  # node to steps, seed, edge
        level = [(seed, seed) for seed in sorted(seeds)]
        steps = 0
        while level:
            steps += 1
            following: list[tuple[int, int]] = []
            for node, seed in level:
                for edge in self._child_edges(node):
                    child = self._edge_child[edge]
                    if self._edge_weight[edge] >= self.tau_ppm and child not in reached:
                        reached[child] = steps, seed, edge
                        following.append((child, seed))
            level = following
        return tuple(
            Descendant(
                entry_id=self._ids[node], seed=self._ids[seed], parent=self._ids[self._edge_parent[edge]],
                weight_ppm=self._edge_weight[edge], steps=steps,
            )
            for node, (steps, seed, edge) in sorted(reached.items())
            if node not in seeds and not self._removed[node]
        )  # fmt: skip

    def labels(self) -> Iterator[tuple[str, TrustLabel]]:
        """All live entries and their labels, in append order."""
        for node, entry_id in enumerate(self._ids):
            if not self._removed[node]:
                yield entry_id, self._label(node)

    def to_networkx(self) -> Any:
        """Return a `networkx.DiGraph` for reports: nodes with `label` and `removed`, edges with `weight_ppm`."""
        import networkx as nx  # noqa: PLC0415 - the gate must not pay for it

        graph = nx.DiGraph()
        for node, entry_id in enumerate(self._ids):
            graph.add_node(entry_id, label=self._label(node), removed=bool(self._removed[node]))
        for parent, child, weight in zip(self._edge_parent, self._edge_child, self._edge_weight, strict=True):
            graph.add_edge(self._ids[parent], self._ids[child], weight_ppm=weight)
        return graph

    def _node(self, entry_id: str) -> int:
        node = self._index.get(entry_id)
        if node is None:
            raise UsageError(f"no entry {entry_id!r:.80} in the lineage of tenant {self.tenant!r:.80}")
        return node

    def _step(self, node: int, left_out: int = 0) -> PathStep:
        edge = self._witness[node]
        return PathStep(
            entry_id=self._ids[node], label=self._label(node), removed=bool(self._removed[node]),
            weight_ppm=None if edge == _NONE else self._edge_weight[edge], left_out=left_out,
        )  # fmt: skip

    def _label(self, node: int) -> TrustLabel:
        hops = self._hops[node]
        if hops == _NONE:
            return "trusted"
        return "external" if hops == 0 else "derived-untrusted"

    def _add_node(self, entry_id: str, *, external: bool, removed: bool) -> int:
        node = len(self._ids)
        self._ids.append(entry_id)
        self._index[entry_id] = node
        self._base_external.append(external)
        self._removed.append(removed)
        self._hops.append(_NONE)
        self._witness.append(_NONE)
        self._root.append(_NONE)
        self._newest_child_edge.append(_NONE)
        self._edges_from.append(self._edges_from[-1])
        return node

    def _child_edges(self, node: int) -> Iterator[int]:
        edge = self._newest_child_edge[node]
        while edge != _NONE:
            yield edge
            edge = self._edge_next[edge]

    def _judge(self, node: int) -> None:
        """Set hops, witness and root of a node whose parents are judged."""
        if self._base_external[node] or self._removed[node]:
            self._hops[node], self._witness[node], self._root[node] = 0, _NONE, node
            return
        best_hops, best_weight, witness = _NONE, -1, _NONE
        for edge in range(self._edges_from[node], self._edges_from[node + 1]):
            weight = self._edge_weight[edge]
            if weight < self.tau_ppm:
                continue
            hops = self._hops[self._edge_parent[edge]]
            if hops != _NONE and (hops + 1, -weight) < (best_hops, -best_weight):
                best_hops, best_weight, witness = hops + 1, weight, edge
        self._hops[node], self._witness[node] = best_hops, witness
        self._root[node] = _NONE if witness == _NONE else self._root[self._edge_parent[witness]]
