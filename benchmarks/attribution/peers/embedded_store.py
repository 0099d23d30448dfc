"""A store whose requests and queries are embedded once, however many of its entries are taken out afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.replays.retrieval import RankedMemory, dense_ranker

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.models.protocols import Embedder

__all__ = ["EmbeddedStore"]


class EmbeddedStore:
    """Dense retrieval over what is left of some entries.

    Args:
        entries: The whole store.
        queries: All that will be asked.
        k: Memories retrieved.
        embedder: Of requests and queries.
    """

    def __init__(self, entries: Sequence[Entry], queries: Sequence[str], k: int, embedder: Embedder) -> None:
        self._entries, self._k = entries, k
        vectors = embedder.embed([*(entry.request for entry in entries), *queries])
        self._requests = vectors[: len(entries)]
        self._queries = dict(zip(queries, vectors[len(entries) :], strict=True))

    def without(self, removed: Collection[str] = ()) -> RankedMemory:
        """Return the agent's memory without some entries."""
        left = [number for number, entry in enumerate(self._entries) if entry.entry_id not in removed]
        ranker = dense_ranker(self._requests[left], self._queries)
        return RankedMemory([self._entries[number] for number in left], ranker, self._k)

    def similarity(self, query: str) -> Mapping[str, float]:
        """Return the cosine of a query and each entry's request."""
        cosines = (self._requests @ self._queries[query]).tolist()
        return {entry.entry_id: cosine for entry, cosine in zip(self._entries, cosines, strict=True)}
