"""The semantic key of a removed memory: its embedding in whole numbers, so that a signed record can hold it.

A key is not the text, but it says something of it: whoever has the same embedder can test a guess at the text against
it, as against the leaf hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAX_DIMENSIONS", "SemanticKey"]

MAX_DIMENSIONS = 8_192
"""Four of them, written in base 64, still fit into a tombstone."""

_LEVELS = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticKey:
    """An embedding quantised to signed bytes; its direction alone counts."""

    embedder: str
    """Id of the embedding model: keys of different ones cannot be compared."""

    quantised: bytes
    """One signed byte for each dimension, the largest magnitude at 127."""

    @classmethod
    def of(cls, vector: NDArray[np.float32], embedder: str) -> SemanticKey:
        """Quantise an embedding of shape (dimensions,).

        Raises:
            UsageError: not one finite vector that points anywhere.
        """
        largest = float(np.abs(vector).max()) if vector.ndim == 1 and vector.size else 0.0
        if not np.isfinite(largest) or largest == 0.0 or vector.size > MAX_DIMENSIONS:
            raise UsageError(f"embedder {embedder!r:.80}: a vector of shape {vector.shape} cannot be a semantic key")
        return cls(embedder=embedder, quantised=np.rint(vector * (_LEVELS / largest)).astype(np.int8).tobytes())

    def levels(self) -> NDArray[np.int8]:
        """Return the whole numbers, shape (dimensions,)."""
        return np.frombuffer(self.quantised, np.int8)
