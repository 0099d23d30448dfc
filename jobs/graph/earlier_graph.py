"""What an earlier run knew of one tenant: a night pays for the neighbourhoods of what is new.

An entry is the same where its id and its text are. Files that the earlier run did not write with these keys and models
are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_audit.consistency.stored_graph import REPEATING
from memory_audit.jobs.graph.graph_folder import NODES
from memory_audit.jobs.run.shards import text_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.consistency.stored_graph import OwnedPairs
    from memory_audit.jobs.graph.graph_folder import GraphFolder

__all__ = ["EarlierGraph"]


class EarlierGraph:
    """The part of a tenant's earlier graph that is about nodes of this one; it holds two numbers for each pair.

    Args:
        folder: Of the earlier run, with the models of this one.
        tenant: Whose.
        ids: The first entry of each node, in log order.
        texts: Of each node.
    """

    def __init__(self, folder: GraphFolder, tenant: str, ids: Sequence[str], texts: Sequence[str]) -> None:
        digests = {name: text_key(text) for name, text in zip(ids, texts, strict=True)}
        self.vectors: dict[str, NDArray[np.float32]] = {}
        """By entry."""

        for block in folder.blocks(tenant, NODES):
            if (nodes := folder.nodes(block)) is not None:
                known = zip(nodes.entries, nodes.texts, nodes.vectors, strict=True)
                self.vectors |= {name: vector for name, digest, vector in known if digests.get(name) == digest}
        self._nodes = len(ids)
        same = pa.array([name if name in self.vectors else None for name in ids], pa.string())
        codes, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
        for block in folder.blocks(tenant):
            if (table := folder.pairs(block)) is not None:
                ends = [pc.fill_null(pc.index_in(table[name], same), -1).to_numpy() for name in REPEATING]
                known_ends = np.minimum(*ends) >= 0
                codes.append(self._codes(*ends)[known_ends])
                weights.append(table["contradiction"].to_numpy()[known_ends])
        every = np.concatenate(codes)
        order = np.argsort(every)
        self._known, self._weights = every[order], np.concatenate(weights)[order]

    def _codes(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        codes: NDArray[np.int64] = np.minimum(a, b).astype(np.int64) * self._nodes + np.maximum(a, b)
        return codes

    def weights(self, pairs: OwnedPairs) -> NDArray[np.float64]:
        """Return w of pairs, shape (m,); NaN where it is not known."""
        wanted = self._codes(pairs.entry, pairs.neighbour)
        found = np.full(len(wanted), np.nan)
        if len(self._known):
            at = np.minimum(np.searchsorted(self._known, wanted), len(self._known) - 1)
            here = self._known[at] == wanted
            found[here] = self._weights[at[here]]
        return found
