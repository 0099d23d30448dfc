"""The whole consistency graph of one tenant on disk: Parquet of its pairs, each once, and read in parts.

    entry  neighbour  cosine  contradiction  place  place_back
    m17    m4         0.81    0.02           0      3
    m17    m90        0.77    0.64           1      -1

The first row says that m4 is the nearest neighbour of m17 (`place` 0), that m17 is the fourth of m4 (`place_back` 3; -1
where it is none of its neighbours), and that w of the pair is 0.02. Where each is a neighbour of the other, the row
stands with the earlier of them. Of copies only the first is named. A table holds the rows of some nodes that follow on
each other in the log; all tables of a tenant make the graph.

Whoever reads it holds the lists of PART_NODES nodes, however large the tenant is. What is built from them equals the
graph that was stored to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_audit.consistency.distribution import CasDistribution
from memory_audit.consistency.graph import scored
from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from memory_audit.consistency.neighbours import Neighbours

__all__ = ["PAIRS_SCHEMA", "REPEATING", "GraphPart", "OwnedPairs", "StoredGraph"]

PART_NODES = 1 << 18
"""Nodes whose lists are read at once: 80 MB with ten neighbours."""

PAIRS_SCHEMA = pa.schema(
    [
        ("entry", pa.string()),
        ("neighbour", pa.string()),
        ("cosine", pa.float64()),
        ("contradiction", pa.float64()),
        ("place", pa.int32()),
        ("place_back", pa.int32()),
    ]
)
REPEATING = ("entry", "neighbour")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPairs:
    """The m pairs of a tenant's nodes, each with the node that it is stored with; all of shape (m,), by `entry`."""

    entry: NDArray[np.int64]
    """Node that has the other as a neighbour; of two that have each other, the earlier."""

    neighbour: NDArray[np.int64]
    cosine: NDArray[np.float64]
    place: NDArray[np.int64]
    place_back: NDArray[np.int64]

    @classmethod
    def of(cls, found: Neighbours) -> OwnedPairs:
        """Sort the pairs of all nodes by their owners."""
        width, flat = max(found.lists.shape[1], 1), found.list_pairs.ravel()
        by_pair = np.argsort(flat, kind="stable")
        starts = np.flatnonzero(np.diff(flat[by_pair], prepend=-1))
        both = np.diff(starts, append=len(flat)) > 1
        first = by_pair[starts]
        back = np.full(len(first), -1, np.int64)
        back[both] = by_pair[starts[both] + 1] % width
        order = np.argsort(first)
        first, back = first[order], back[order]
        return cls(
            entry=first // width, neighbour=found.lists.ravel()[first], cosine=found.similarity[flat[first]],
            place=first % width, place_back=back,
        )  # fmt: skip

    def of_nodes(self, first: int, end: int) -> OwnedPairs:
        """Return the pairs that are stored with nodes from `first` to before `end`."""
        part = slice(*np.searchsorted(self.entry, [first, end]))
        return OwnedPairs(
            entry=self.entry[part], neighbour=self.neighbour[part], cosine=self.cosine[part], place=self.place[part],
            place_back=self.place_back[part],
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """Some nodes that follow on each other, with all their neighbours; rows are nodes."""

    first: int
    lists: NDArray[np.int64]
    """Shape (r, k): the neighbours of each, most similar first."""

    similarity: NDArray[np.float64]
    """Same shape."""

    contradiction: NDArray[np.float64]
    """Same shape."""

    cas: NDArray[np.float64]
    """Shape (r,): eq. 8."""

    density: NDArray[np.float64]
    """Shape (r,): mean similarity to the neighbours."""


class StoredGraph:
    """One tenant's whole graph.

    Args:
        node_ids: The first entry of each node, in log order.
        neighbours: Of each node.
        tables: Opens the tables of the graph, of PAIRS_SCHEMA, in any order; called for each part.
    """

    def __init__(self, node_ids: Sequence[str], neighbours: int, tables: Callable[[], Iterable[pa.Table]]) -> None:
        self._ids = pa.array(node_ids, pa.string())
        self._width, self._tables = neighbours, tables

    def parts(self, nodes: int = PART_NODES) -> Iterator[GraphPart]:
        """Yield so many nodes at a time, in log order.

        Raises:
            UsageError: what is stored is not the graph of these entries.
        """
        for first in range(0, len(self._ids), nodes):
            yield self._part(first, min(nodes, len(self._ids) - first))

    def _part(self, first: int, nodes: int) -> GraphPart:
        lists = np.full((nodes, self._width), -1, np.int64)
        similarity, contradiction = np.zeros(lists.shape), np.zeros(lists.shape)
        for table in self._tables():
            ends = [self._rows(table[name]) for name in REPEATING]
            places = [table[name].to_numpy() for name in ("place", "place_back")]
            values = [(similarity, table["cosine"].to_numpy()), (contradiction, table["contradiction"].to_numpy())]
            for node, other, place in ((ends[0], ends[1], places[0]), (ends[1], ends[0], places[1])):
                if place.max(initial=-1) >= self._width:
                    raise _other_graph()
                here = (place >= 0) & (node >= first) & (node < first + nodes)
                at = node[here] - first, place[here]
                lists[at] = other[here]
                for target, value in values:
                    target[at] = value[here]
        if (lists < 0).any():
            raise _other_graph()
        cas, density = scored(similarity, contradiction)
        return GraphPart(
            first=first, lists=lists, similarity=similarity, contradiction=contradiction, cas=cas, density=density
        )  # fmt: skip

    def _rows(self, names: pa.ChunkedArray) -> NDArray[np.int64]:
        rows = pc.index_in(names, value_set=self._ids)
        if rows.null_count:
            raise _other_graph()
        return np.asarray(rows.to_numpy(), np.int64)

    def usual(self, copies: NDArray[np.int64]) -> CasDistribution:
        """Return which inconsistency is usual; this holds a number for each entry.

        Args:
            copies: Shape (nodes,): how many entries each node stands for.

        Raises:
            UsageError: as `parts`.
        """
        cas = np.concatenate([part.cas for part in self.parts()])
        return CasDistribution.of(np.repeat(cas, copies), int(copies.sum()))


def _other_graph() -> UsageError:
    return UsageError("a stored graph is not that of these memories; delete it and resume")
