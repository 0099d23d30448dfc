"""The consistency graph of one tenant, as far as it was asked for.

Exact copies of a text are one node with a count: the paper's graph has a node for each entry, and there a flood of
copies fills the neighbour lists of all that resembles them, and their own.

A graph is *whole*, or grows by what is asked for. Then a seeded sample comes with the first neighbourhood, which tells
what is usual in the store (`memory_audit.consistency.distribution`). What is known stays as it is.

    graph.embed(vectors_of_texts, vectors_of_responses)
    pairs = graph.plan(entry_ids)
    graph.observe(weights_of(pairs))
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.consistency.distribution import CasDistribution, sampled
from memory_audit.consistency.graph import ConsistencyGraph, build_graph
from memory_audit.consistency.neighbours import Neighbours, nearest
from memory_audit.consistency.restated import restated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from memory_audit.consistency.neighbours import Propose
    from memory_audit.consistency.stored_graph import StoredGraph
    from memory_audit.entry import Entry

__all__ = ["TenantGraph"]


class TenantGraph:
    """What is known of one tenant's graph; entries are named by their ids, and what is not known is None.

    Args:
        entries: The tenant's live ones, in log order.
        neighbours: Most neighbours of a node (k in eq. 8).
        all_pairs_below: A store of at most so many entries has every pair.
        seed: Of the sample, and of a clustering.
        whole: Whether the first plan is of all entries.
    """

    def __init__(
        self, entries: Sequence[Entry], *, neighbours: int, all_pairs_below: int = 0, seed: int = 0, whole: bool = False
    ) -> None:
        self.entries, self.whole = entries, whole
        self._neighbours, self._all_pairs_below, self._seed = neighbours, all_pairs_below, seed
        self._vectors: NDArray[np.float32] | None = None
        self.responses = np.zeros((0, 0), np.float32)
        """Shape (entries, dimensions), unit rows, once embedded."""

        self._found: Neighbours | None = None
        self._known: ConsistencyGraph | None = None
        self._rows = np.zeros(0, np.int64)
        self.usual: CasDistribution | None = None
        """None until the first pairs are observed."""

    @cached_property
    def places(self) -> dict[str, int]:
        """Entry id to the place in `entries`."""
        return {entry.entry_id: place for place, entry in enumerate(self.entries)}

    @cached_property
    def _nodes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shape (entries,): the node of each entry. Shape (nodes,): the first entry of each node."""
        first: dict[str, int] = {}
        firsts = np.array([first.setdefault(entry.text, place) for place, entry in enumerate(self.entries)], np.int64)
        _, nodes = np.unique(firsts, return_inverse=True)
        return nodes, np.unique(firsts)

    @cached_property
    def restated(self) -> NDArray[np.int64]:
        """Shape (entries,): the place of the first entry that says the same; its own where none before it does.

        Of an embedded graph. Entries of one text say the same; for others see `restated.restated`. What NLI said counts
        where the whole graph was compared before this is asked for.
        """
        if self._vectors is None:
            raise ValueError("what is said again is known once a graph is embedded")
        nodes, firsts = self._nodes
        whole = self._known is not None and self._known.neighbours.size == len(firsts)
        known = self._known if whole else None
        found = self.nearest() if known is None else known.neighbours
        weights = None if known is None else known.contradiction
        joined: NDArray[np.int64] = firsts[restated(self._vectors, self.texts, found, weights)[nodes]]
        return joined

    @property
    def node_ids(self) -> list[str]:
        """The first entry of each node."""
        return [self.entries[place].entry_id for place in self._nodes[1].tolist()]

    @property
    def copies(self) -> NDArray[np.int64]:
        """Shape (nodes,): how many entries each node stands for."""
        return np.bincount(self._nodes[0], minlength=len(self._nodes[1]))

    @property
    def is_complete(self) -> bool:
        """Tell whether nothing is left to be asked."""
        return self.whole and self._known is not None

    @property
    def is_embedded(self) -> bool:
        """Tell whether `plan` may be called."""
        return self._vectors is not None

    @property
    def texts(self) -> list[str]:
        """The text of each node."""
        return [self.entries[place].text for place in self._nodes[1].tolist()]

    @property
    def pairs(self) -> int:
        """How many pairs are known."""
        return 0 if self._known is None else len(self._known.contradiction)

    def embed(self, texts: NDArray[np.float32], responses: NDArray[np.float32]) -> None:
        """Take the embeddings of `texts`, shape (nodes, dimensions), and of the responses, (entries, dimensions)."""
        self._vectors, self.responses = texts, responses
        self._rows = np.full(len(texts), -1, np.int64)

    def plan(self, entry_ids: Collection[str]) -> list[tuple[str, str]]:
        """Find the neighbours of these entries, and return the pairs of texts to be compared for them.

        The first plan has those of the sample too, or of all entries. A plan that is not observed is void.

        Raises:
            ModelError: the embeddings are no unit vectors.
        """
        nodes, known = self._nodes[0], self._known
        wanted = nodes[[self.places[name] for name in entry_ids if name in self.places]]
        if known is None:
            drawn = np.arange(len(nodes)) if self.whole else sampled(len(nodes), self._seed)
            wanted = np.concatenate([wanted, nodes[drawn]])
        wanted = np.unique(wanted)
        self._found = self.nearest(None if self.whole and known is None else wanted[self._rows[wanted] < 0])
        if known is not None:
            self._found = known.neighbours.beside(self._found)
        asked = self._found.pairs[~self._is_known(self._found)]
        firsts = self._nodes[1]
        return [(self.entries[a].text, self.entries[b].text) for a, b in firsts[asked].tolist()]

    @property
    def width(self) -> int:
        """How many neighbours each node has."""
        others = len(self._nodes[1]) - 1
        return others if len(self.entries) <= self._all_pairs_below else min(self._neighbours, others)

    def nearest(self, rows: NDArray[np.int64] | None = None, propose: Propose | None = None) -> Neighbours:
        """Find the neighbours of some nodes, or of all, among those embedded; see `neighbours.nearest`."""
        if self._vectors is None:
            raise ValueError("a graph plans once it is embedded")
        return nearest(self._vectors, max(self.width, 1), rows=rows, seed=self._seed, propose=propose)

    def recall(self, stored: StoredGraph, responses: NDArray[np.float32]) -> None:
        """Take the whole graph as it was stored, and the embeddings of the responses, (entries, dimensions).

        Raises:
            UsageError: what is stored is not the graph of these entries.
        """
        parts = list(stored.parts())
        lists, similarity, weights = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("lists", "similarity", "contradiction")
        )
        self._found = Neighbours.of_lists(lists, similarity)
        self._rows = np.full(len(lists), -1, np.int64)
        self.responses = responses
        contradiction = np.empty(len(self._found.pairs))
        contradiction[self._found.list_pairs] = weights
        self.observe(contradiction)

    def observe(self, weights: NDArray[np.float64]) -> None:
        """Take the contradiction weights of the pairs that were planned, in their order.

        Raises:
            UsageError: they do not fit the pairs, or are no numbers from 0 to 1.
        """
        if self._found is None:
            raise ValueError("nothing was planned")
        known = self._is_known(self._found)
        contradiction = np.empty(len(known))
        contradiction[~known] = weights
        if self._known is not None:
            contradiction[known] = self._known.contradiction
        self._known = build_graph(self._found, contradiction)
        self._rows[self._found.rows] = np.arange(self._found.size)
        if self.usual is None:
            nodes = self._nodes[0]
            drawn = nodes if self.whole else nodes[sampled(len(nodes), self._seed)]
            self.usual = CasDistribution.of(self._known.cas[self._rows[drawn]], len(nodes))
        self._found = None

    def _is_known(self, found: Neighbours) -> NDArray[np.bool_]:
        """Tell of each pair, shape (m,), whether its weight is known; known pairs come in the same order."""
        codes = found.pairs @ [len(self._rows), 1]
        known = np.zeros(0, np.int64) if self._known is None else self._known.neighbours.pairs @ [len(self._rows), 1]
        return np.isin(codes, known, assume_unique=True)

    def compared(self) -> Iterator[str]:
        """Yield the entries whose neighbourhood is known, in log order."""
        known = np.flatnonzero(self._rows[self._nodes[0]] >= 0) if self._known is not None else ()
        return (self.entries[place].entry_id for place in known)

    def _row(self, place: int) -> int | None:
        row = -1 if self._known is None else int(self._rows[self._nodes[0][place]])
        return None if row < 0 else row

    def cas(self, entry_id: str) -> float | None:
        """Return the inconsistency of an entry (eq. 8); KeyError where there is no such entry."""
        row = self._row(self.places[entry_id])
        return None if row is None or self._known is None else float(self._known.cas[row])

    def density(self, entry_id: str) -> float | None:
        """Return how near its neighbours are to an entry: their mean similarity."""
        row = self._row(self.places[entry_id])
        return None if row is None or self._known is None else float(self._known.density[row])

    def fits_in(self, entry_id: str) -> bool | None:
        """Tell whether an entry is more consistent than the median one."""
        cas = self.cas(entry_id)
        return None if cas is None or self.usual is None else cas < self.usual.median.value

    def near(self, place: int) -> list[int]:
        """Return the places of the neighbours of an entry, nearest first, copies by their first; empty if unknown."""
        row = self._row(place)
        if row is None or self._known is None:
            return []
        near: list[int] = self._nodes[1][self._known.neighbours.lists[row]].tolist()
        return near

    def edges(self) -> Iterable[tuple[str, str, float, float]]:
        """Yield the pairs compared: two entries, the first of their copies, with similarity and contradiction."""
        if self._known is None:
            return
        ends = self._nodes[1][self._known.neighbours.pairs].tolist()
        values = zip(self._known.neighbours.similarity.tolist(), self._known.contradiction.tolist(), strict=True)
        for (a, b), (similarity, contradiction) in zip(ends, values, strict=True):
            yield self.entries[a].entry_id, self.entries[b].entry_id, similarity, contradiction
