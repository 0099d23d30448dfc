"""The memory consistency graph of one tenant: what contradicts its neighbours, and what lies close together.

CAS (paper eq. 8) sums w x sim over an entry's own k nearest neighbours, so every entry has the same number of terms;
a negative cosine counts as 0, because contradicting something unrelated is no evidence. Rank with CAS, do not cut with
it.

Poison written to be retrieved together is often each other's nearest neighbour, so density (mean similarity to the k
nearest) comes along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_audit.consistency.neighbours import Neighbours

__all__ = ["ConsistencyGraph", "build_graph", "scored"]

CONTRADICTION_WEIGHT = 0.5
"""w from which a pair counts as a contradiction: the class is then more likely than the other two together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistencyGraph:
    """Structural evidence on the r entries whose neighbours are known."""

    neighbours: Neighbours
    contradiction: NDArray[np.float64]
    """Shape (m,): w of each pair of `neighbours.pairs`."""

    cas: NDArray[np.float64]
    """Shape (r,): eq. 8; 0 where an entry has no neighbour."""

    density: NDArray[np.float64]
    """Shape (r,): mean similarity to the neighbours; 0 where there is none."""


def build_graph(
    neighbours: Neighbours,
    contradiction: NDArray[np.float64],
) -> ConsistencyGraph:
    """Score entries against their neighbourhoods.

    Args:
        neighbours: Of one tenant.
        contradiction: Shape (m,), w of each pair in the order of `neighbours.pairs`, in [0, 1].

    Raises:
        UsageError: the weights do not fit the pairs or are not finite numbers in [0, 1].
    """
    w = np.asarray(contradiction, dtype=np.float64)
    if w.shape != neighbours.similarity.shape:
        raise UsageError(f"{w.shape} contradiction weights for {len(neighbours.pairs)} pairs, expected one per pair")
    bad = np.flatnonzero(~((w >= 0) & (w <= 1)))
    if len(bad):
        raise UsageError(f"contradiction weight {bad[0]} is {w[bad[0]]}, expected a number from 0 to 1")
    cas, density = scored(neighbours.similarity[neighbours.list_pairs], w[neighbours.list_pairs])
    return ConsistencyGraph(neighbours=neighbours, contradiction=w, cas=cas, density=density)


def scored(
    similarity: NDArray[np.float64], contradiction: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return CAS and density of some entries, both (r,), from cosine and w of each with its neighbours, both (r, k)."""
    # Sorted before summing: the sum then does not depend on the order in which entries are numbered.
    cas = np.sort(contradiction * np.maximum(similarity, 0.0), axis=1).sum(axis=1)
    return cas, np.sort(similarity, axis=1).sum(axis=1) / max(similarity.shape[1], 1)
