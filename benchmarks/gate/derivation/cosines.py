"""Cosines of pairs of texts, as a method of their own; `memaudit lineage` takes them of the vectors that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memory_audit.consistency.neighbours import check_vectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.models.derivation import Pair
    from memory_audit.models.protocols import Embedder

__all__ = ["embedding_scores"]


def embedding_scores(pairs: Sequence[Pair], embedder: Embedder) -> NDArray[np.float64]:
    """Cosine of parent and child, negative ones as 0. Shape (len(pairs),).

    Raises:
        ModelError: the embedder failed, or gave what is no unit vector.
    """
    texts = sorted({text for pair in pairs for text in pair})
    if not texts:
        return np.zeros(0)
    embedded = embedder.embed(texts)
    check_vectors(embedded)
    vectors = dict(zip(texts, embedded.astype(np.float64), strict=True))
    return np.asarray([max(0.0, float(vectors[parent] @ vectors[child])) for parent, child in pairs])
