"""The derivation DAG of one tenant: who was drawn on for what, and the trust label that follows.

An edge's weight is the share of the entry that its writer says it draws on that parent: a claim, signed by the writer.

    external           its writer is not trusted (`lineage.trust`), or it was removed; or its unrecorded share is
                       τ or more, and its untrusted share is not
    derived-untrusted  otherwise, if its untrusted and its unrecorded share add up to τ or more
    trusted            otherwise

The untrusted share of an entry (`memory_audit.lineage.shares`) adds up over its parents: an untrusted parent counts
with all that is drawn on it, a trusted one with the part of that which is untrusted itself. So what stays below τ in
each entry still adds up along a chain, over any paths. At τ an entry is untrusted as a whole, and hands on all of
itself. Hence:

- Untrusted-Path Persistence (arXiv 2605.14421, known here by its review): along any chain whose edges stay at or above
  τ, *strong* edges, no number of steps makes an external ancestor harmless. The review draws strong edges as w > τ;
  here w = τ is strong too, the careful reading.
- What an entry draws on external parents may be cut into any number of edges: that launders nothing.
- An external parent more, or a heavier edge to one, makes no untrusted entry trusted, nor does a removal. Where its
  weights add up to at most 1, leaving a parent out does not either: what was drawn on it is then unrecorded.

`propagation: strongest` is the rule of the paper instead (max of strong edges): a strong edge to an untrusted parent
hands on distrust, and weak edges, however many, none. Either way lineage is as good as its weights: a writer who says
that all was drawn on a trusted memory is believed.

Edges lead only to entries that came earlier, so there are no cycles to search for: an unknown, later or foreign parent
is refused at the append, and a label never changes afterwards, except by a removal. An append costs its edges.

Removal keeps the node and its edges and makes it external: lineage through a removed entry does not vanish. A DAG built
after the removal knows only the id (the tombstone keeps no parents) and comes to the same labels.

Plain arrays hold the graph, 16 bytes an edge: a networkx graph of a million edges takes 5 to 13 times as much (measured
by `benchmarks/gate/lineage`), and nothing here walks more than parents and children.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.entry import PARTS_PER_MILLION, check_int
from memory_audit.errors import EntryError, UsageError
from memory_audit.lineage.shares import Drawn, Edge, drawn, untrusted_share
from memory_audit.lineage.trust import DEFAULT_TAU_PPM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from memory_audit.entry import Entry
    from memory_audit.lineage.trust import TrustRules
    from memory_audit.result import TrustLabel

__all__ = ["DEFAULT_TAU_PPM", "PATH_STEPS", "Descendant", "Lineage", "PathStep"]

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
    """An entry that draws on one of the entries asked about."""

    entry_id: str
    seed: str
    """The entry asked about that it descends from, by fewest edges."""

    parent: str
    """The last step before it."""

    weight_ppm: int
    steps: int
    share_ppm: int
    """How much of it comes from the entries asked about, in parts per million; all of it from τ on."""

    @property
    def strong(self) -> bool:
        """Whether that is τ or more."""
        return self.share_ppm == PARTS_PER_MILLION


class Lineage:
    """Entries of one tenant, their derivation edges and labels; grows by `append`, one entry at a time.

    Args:
        tenant: Entries of others are refused.
        rules: Base labels, and how distrust is handed on.
        tau_ppm: τ in parts per million: the share from which an entry is untrusted.
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
        self._unrecorded = array("I")  # per node: the share that no parent accounts for
        self._share = array("I")  # per node: its untrusted share; all of it from τ on
        self._hops = array("I")  # per node with such a share: edges from an external entry; 0 is external itself
        self._witness = array("I")  # per node: the last edge of that path
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
            EntryError: another tenant's, an id that is or was there, a parent that is no earlier entry, or an estimated
                weight that is no whole number from 0 to 1,000,000.
        """
        where = f"tenant {self.tenant!r:.80}: entry {entry.entry_id!r:.80}"
        if entry.tenant != self.tenant:
            raise EntryError(f"{where} is of tenant {entry.tenant!r:.80}: lineage stays within one tenant")
        index = self._index
        if entry.entry_id in index:
            raise EntryError(f"{where} is or was there already: entry ids are used once")
        weights = {parent.entry_id: parent.weight_ppm for parent in entry.parents}
        for name, weight in estimated.items():
            check_int(weight, f"{where}: estimated weight of parent {name!r:.80}", PARTS_PER_MILLION)
            weights[name] = max(weight, weights.get(name, 0))
        parents = []
        for name in weights:
            position = index.get(name)
            if position is None:
                raise EntryError(f"{where} names parent {name!r:.80}, which is no earlier entry (unknown, or a cycle)")
            parents.append(position)
        external = self.rules.distrust_writer(entry) is not None
        node = self._add_node(entry.entry_id, external=external, unrecorded=self.rules.unrecorded_ppm(entry))
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

    def remove(self, *entry_ids: str) -> None:
        """Mark entries removed: they stay as external nodes, and their descendants are relabelled, each once.

        Raises:
            UsageError: no such entry; none is marked then.
        """
        gone = [node for node in map(self._node, entry_ids) if not self._removed[node]]
        for node in gone:
            self._removed[node] = 1
        self._walk(gone, self._judge)

    def label(self, entry_id: str) -> TrustLabel:
        """Label of an entry. Raises UsageError where there is none of that id."""
        node = self._index.get(entry_id)
        return self._label(self._node(entry_id) if node is None else node)

    def is_removed(self, entry_id: str) -> bool:
        """Tell whether an entry was removed. Raises UsageError where there is none of that id."""
        return bool(self._removed[self._node(entry_id)])

    def path(self, entry_id: str, most: int | None = None) -> tuple[PathStep, ...]:
        """Return the evidence for a label: a path from an external ancestor to the entry.

        Its last edge is a strong one to an untrusted parent, of several the one nearest to an external entry, then the
        heaviest, then the one named first. Where shares add up without such an edge, it is the one that adds most, and
        the path may lead over trusted entries. The same from any order of building. Empty for a trusted entry. Raises
        UsageError where there is none of that id.

        Args:
            entry_id: Where it ends.
            most: Steps to return, at least 2: of a longer path the first and the last ones; None for all of them.
        """
        node = self._node(entry_id)
        hops = self._hops[node]
        if self._share[node] < PARTS_PER_MILLION:
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

        A trusted entry has one, too, if a share of it is untrusted. Raises UsageError where there is no such entry.
        """
        edge = self._witness[self._node(entry_id)]
        return None if edge == _NONE else (self._ids[self._edge_parent[edge]], self._edge_weight[edge])

    def shares(self, entry_id: str) -> tuple[int, int]:
        """Return the untrusted share of an entry as its edges say, and the unrecorded one, in parts per million.

        Raises UsageError where there is no entry of that id.
        """
        node = self._node(entry_id)
        edges = range(self._edges_from[node], self._edges_from[node + 1])
        pairs = ((self._share[self._edge_parent[edge]], self._edge_weight[edge]) for edge in edges)
        return untrusted_share(pairs), self._unrecorded[node]

    def descendants(self, entry_ids: Iterable[str]) -> tuple[Descendant, ...]:
        """Return live entries that draw on `entry_ids`, those themselves left out, in append order.

        The reducer's closure: what was derived from entries that go should go, or be judged, with them, where it draws
        τ or more on them (`strong`). Shares are handed on as for labels. Removed entries are walked through and not
        returned.

        Raises:
            UsageError: no such entry.
        """
        seeds = {self._node(entry_id) for entry_id in entry_ids}
        shares, hops, roots = (array("I", bytes(4 * len(self._ids))) for _ in range(3))
        for seed in seeds:
            shares[seed], roots[seed] = PARTS_PER_MILLION, seed
        found = []

        def draws(node: int) -> bool:
            shares[node], edge = (shares[node], None) if node in seeds else self._drawn(node, shares, hops)
            if edge is None:
                return node in seeds
            parent = self._edge_parent[edge.number]
            hops[node], roots[node] = edge.hops + 1, roots[parent]
            if not self._removed[node]:
                found.append(
                    Descendant(
                        entry_id=self._ids[node], seed=self._ids[roots[node]], parent=self._ids[parent],
                        weight_ppm=edge.weight_ppm, steps=hops[node], share_ppm=shares[node],
                    )
                )  # fmt: skip
            return True

        self._walk(seeds, draws)
        return tuple(found)

    def labels(self) -> Iterator[tuple[str, TrustLabel]]:
        """All live entries and their labels, in append order."""
        for node, entry_id in enumerate(self._ids):
            if not self._removed[node]:
                yield entry_id, self._label(node)

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
        if self._share[node] < PARTS_PER_MILLION:
            return "trusted"
        return "external" if self._hops[node] == 0 else "derived-untrusted"

    def _add_node(self, entry_id: str, *, external: bool, removed: bool = False, unrecorded: int = 0) -> int:
        node = len(self._ids)
        self._ids.append(entry_id)
        self._index[entry_id] = node
        self._base_external.append(external)
        self._removed.append(removed)
        self._unrecorded.append(unrecorded)
        self._share.append(0)
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

    def _walk(self, nodes: Iterable[int], visit: Callable[[int], bool]) -> None:
        """Visit nodes, and the children of each visit that returns True, once and in order of append: parents first."""
        waiting = list(nodes)
        heapify(waiting)
        while waiting:
            node = heappop(waiting)
            while waiting and waiting[0] == node:
                heappop(waiting)
            if visit(node):
                for edge in self._child_edges(node):
                    heappush(waiting, self._edge_child[edge])

    def _judge(self, node: int) -> bool:
        """Set share, hops, witness and root of a node whose parents are judged; tell whether they change."""
        before = self._share[node], self._hops[node], self._root[node]
        if self._base_external[node] or self._removed[node]:
            share, edge = PARTS_PER_MILLION, None
        else:
            share, edge = self._drawn(node, self._share, self._hops, self._unrecorded[node])
        hops, witness, root = (0, _NONE, node) if share else (_NONE, _NONE, _NONE)
        if edge is not None:
            hops, witness, root = edge.hops + 1, edge.number, self._root[self._edge_parent[edge.number]]
        self._share[node], self._hops[node], self._witness[node], self._root[node] = share, hops, witness, root
        return (share, hops, root) != before

    def _drawn(self, node: int, shares: array[int], hops: array[int], unrecorded: int = 0) -> Drawn:
        """Return what a node draws on others, given their shares and hops by node; its parents are judged."""
        edges = []
        for number in range(self._edges_from[node], self._edges_from[node + 1]):
            parent = self._edge_parent[number]
            if shares[parent]:
                edges.append(Edge(number, self._edge_weight[number], shares[parent], hops[parent]))
        return drawn(edges, self.tau_ppm, self.rules.propagation, unrecorded)
