"""What an agent retrieves after an attack: a cosine index over whole records, filters at query time, two metrics.

The index is faiss `IndexFlatIP` over unit vectors of request and response, as in the paper. A filter looks at the best
k + δ candidates, drops those it matches, and returns the first k of the rest: slots that cannot be filled stay empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import faiss
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from benchmarks.guard.hst.corpus import Write
    from memory_audit.models.protocols import Embedder

__all__ = ["MemoryIndex", "Retrieval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """What one condition's memory returns."""

    poisoned_share: float
    """PRP@k: of all k · queries slots, the share that holds poison."""

    poisoned_share_returned: float
    """The same over the slots that were filled at all; 0 where none was."""

    results_per_query: float
    """Filled slots per query, k at most."""

    benign_recall: float
    """Share of the benign records that their own request finds among its first k."""


class MemoryIndex:
    """A store's records under one embedder.

    Args:
        writes: The records; poison and paraphrases are those with `harmful` ids.
        embedder: Embeds records and queries.
        harmful: Ids of the records that count as poison.
    """

    def __init__(self, writes: Sequence[Write], embedder: Embedder, harmful: Collection[str]) -> None:
        self._writes = list(writes)
        self._embedder = embedder
        self._harmful = frozenset(harmful)
        if self._writes:  # a guard may have refused everything
            vectors = np.ascontiguousarray(embedder.embed([f"{w.request}\n{w.response}" for w in self._writes]))
            self._index = faiss.IndexFlatIP(vectors.shape[1])
            self._index.add(vectors)

    def search(self, queries: Sequence[str], k: int, *, delta: int, hidden: Collection[str]) -> list[list[str]]:
        """Return ids per query, best first: at most k of the first k + delta that are not `hidden`."""
        if not self._writes or not queries:
            return [[] for _ in queries]
        depth = min(k + delta, len(self._writes))
        _, positions = self._index.search(np.ascontiguousarray(self._embedder.embed(list(queries))), depth)
        found = [[self._writes[position].write_id for position in row] for row in positions]
        return [[name for name in row if name not in hidden][:k] for row in found]

    def measure(self, queries: Sequence[str], k: int, *, delta: int = 0, hidden: Collection[str] = ()) -> Retrieval:
        """Measure one condition; `hidden` are the ids that a filter matches at query time."""
        answers = self.search(queries, k, delta=delta, hidden=hidden)
        poisoned = sum(name in self._harmful for row in answers for name in row)
        filled = sum(len(row) for row in answers)
        benign = [write for write in self._writes if write.write_id not in self._harmful]
        own = self.search([write.request for write in benign], k, delta=delta, hidden=hidden)
        recalled = sum(write.write_id in row for write, row in zip(benign, own, strict=True))
        return Retrieval(
            poisoned_share=poisoned / (k * len(queries)),
            poisoned_share_returned=poisoned / filled if filled else 0.0,
            results_per_query=filled / len(queries),
            benign_recall=recalled / len(benign) if benign else 0.0,
        )
