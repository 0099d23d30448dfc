"""Retrieval R(q, M): which memories an agent would see, with any set of them removed.

The order of all entries for a query is computed once; removing entries only filters that order, so retrieval over the
whole store is recomputed exactly at every ablation (paper App. D) at no cost. Ties go to the entry logged first.
Embedding texts is the caller's: this file takes vectors.

Where the agent logged which memories it had (`logged`, best match first), these come before all others and their number
is retrieved, instead of k: the agent's own retrieval is what did the harm. Who is next in line once one of them is left
out, or gone from the store, is told by the ranking here, as no log says it.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import unicodedata
from typing import TYPE_CHECKING, Protocol

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from memory_audit.entry import MAX_TEXT_BYTES, Entry
from memory_audit.errors import UsageError
from memory_audit.text.nfc import few_marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.events import Event

__all__ = ["RankedMemory", "dense_ranker", "levenshtein_ranker", "topic_memory"]

_TOPIC = "(the question)"


class _Rank(Protocol):
    """From a query to the indices of all entries, best match first."""

    def __call__(self, query: str, /) -> NDArray[np.intp]: ...


def levenshtein_ranker(requests: Sequence[str]) -> _Rank:
    """Rank by edit distance between the query and each entry's request, smallest first (MINJA's released QA agent)."""

    def rank(query: str, /) -> NDArray[np.intp]:
        distances = cdist([query], requests, scorer=Levenshtein.distance, dtype=np.int32)[0]
        return np.argsort(distances, kind="stable")

    return rank


def dense_ranker(request_vectors: NDArray[np.float32], query_vectors: Mapping[str, NDArray[np.float32]]) -> _Rank:
    """Rank by cosine between unit vectors, largest first.

    Args:
        request_vectors: Shape (entries, dimensions), unit rows.
        query_vectors: For every query that will be asked, shape (dimensions,).
    """
    few = len(query_vectors) <= request_vectors.shape[1]
    # Of few queries the similarities take less room than the vectors, which nobody then holds.
    similar = {query: request_vectors @ vector for query, vector in query_vectors.items()} if few else {}
    kept = None if few else request_vectors

    def rank(query: str, /) -> NDArray[np.intp]:
        if query not in query_vectors:
            raise UsageError(f"no embedding for the query {query!r:.60}: embed every event's query first")
        similarities = similar[query] if kept is None else kept @ query_vectors[query]
        # Rounded so that the last bit of a BLAS sum, which depends on the machine, cannot swap equal entries.
        return np.argsort(-np.round(similarities, 6), kind="stable")

    return rank


class RankedMemory:
    """One tenant's entries with retrieval over them."""

    __slots__ = ("_copies", "_entries", "_orders", "_places", "_rank", "k")

    def __init__(self, entries: Sequence[Entry], rank: _Rank, k: int) -> None:
        """Take entries in log order.

        Args:
            entries: The tenant's live entries.
            rank: From a query to indices into `entries`, best first.
            k: How many memories the agent sees.

        Raises:
            UsageError: `k` is not positive or two entries share an id.
        """
        if k < 1:
            raise UsageError(f"k is {k}: the agent must retrieve at least one memory")
        self._entries = tuple(entries)
        self._places = {entry.entry_id: place for place, entry in enumerate(self._entries)}
        if len(self._places) != len(self._entries):
            raise UsageError("two live entries of one tenant share an entry id")
        first: dict[object, Entry] = {}
        copies: dict[object, list[str]] = {}
        for entry in self._entries:
            shown = entry.shown
            if (own := first.setdefault(shown, entry)) is not entry:
                copies.setdefault(shown, [own.entry_id]).append(entry.entry_id)
        self._copies = {shown: tuple(entry_ids) for shown, entry_ids in copies.items()}
        self._rank = rank
        self._orders: dict[tuple[str, tuple[str, ...] | None], NDArray[np.intp]] = {}
        self.k = k

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._places

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries in log order."""
        return self._entries

    def in_log_order(self, entry_ids: Iterable[str]) -> list[str]:
        """Return ids of entries in the order in which they were logged; those of no entry are left out."""
        return sorted((name for name in entry_ids if name in self._places), key=self._places.__getitem__)

    def entry(self, entry_id: str) -> Entry:
        """Return one entry; KeyError if there is none."""
        return self._entries[self._places[entry_id]]

    def copies(self, entry_id: str) -> tuple[str, ...]:
        """Return the entries that an agent cannot tell from this one, itself included, in log order.

        They have the same request, response and metadata: shown alone, they make the same prompt. An id of no entry
        has no copies.
        """
        return self._copies.get(self.entry(entry_id).shown, (entry_id,)) if entry_id in self else (entry_id,)

    def retrieve(
        self,
        query: str,
        removed: frozenset[str] = frozenset(),
        *,
        k: int | None = None,
        logged: tuple[str, ...] | None = None,
    ) -> tuple[Entry, ...]:
        r"""R(q, M \\ removed): the best entries that are left, best first.

        Args:
            query: What the agent is asked.
            removed: Ids of entries left out.
            k: How many; None is the number logged, else the memory's own k.
            logged: Ids of what the agent retrieved; () is nothing, None where the log does not say.
        """
        wanted = self._wanted(logged) if k is None else k
        ranked = (self._entries[index] for index in self._order(query, logged))
        return tuple(itertools.islice((entry for entry in ranked if entry.entry_id not in removed), wanted))

    def context(
        self, query: str, removed: frozenset[str] = frozenset(), *, logged: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        """Return the ids of what is retrieved, best first: equal contexts make equal prompts."""
        return tuple(entry.entry_id for entry in self.retrieve(query, removed, logged=logged))

    def unused(self, query: str, most: int, *, logged: tuple[str, ...] | None = None) -> tuple[Entry, ...]:
        """Return the entries that match least, at most so many, of those that the query does not retrieve."""
        order = self._order(query, logged)
        return tuple(self._entries[index] for index in order[max(self._wanted(logged), len(order) - most) :])

    def drawn(self, query: str, most: int, *, logged: tuple[str, ...] | None = None) -> tuple[Entry, ...]:
        """Return at most so many entries that the query does not retrieve, in an order that their texts do not move.

        The order is that of a digest of query and entry id: the ids of others do not move an entry, and who chooses
        its id and knows the query can plan its place.
        """
        unused = (self._entries[index] for index in self._order(query, logged)[self._wanted(logged) :])
        return tuple(heapq.nsmallest(most, unused, key=lambda entry: _digest(query, entry.entry_id)))

    def _wanted(self, logged: tuple[str, ...] | None) -> int:
        return self.k if logged is None else len(logged)

    def _order(self, query: str, logged: tuple[str, ...] | None) -> NDArray[np.intp]:
        order = self._orders.get((query, logged))
        if order is None:
            order = self._rank(query) if logged is None else self._logged_first(self._order(query, None), logged)
            self._orders[query, logged] = order
        return order

    def _logged_first(self, order: NDArray[np.intp], logged: tuple[str, ...]) -> NDArray[np.intp]:
        first = np.array([self._places[name] for name in logged if name in self._places], np.intp)
        return np.concatenate([first, order[~np.isin(order, first)]])


def _digest(query: str, entry_id: str) -> bytes:
    return hashlib.sha256(f"{query}\x00{entry_id}".encode(errors="replace")).digest()


def topic_memory(event: Event) -> Entry:
    """Return the control memory that says what an event asks, and states nothing; no store holds it."""
    asked = unicodedata.normalize("NFC", few_marks(event.query))
    text = asked.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore")
    return Entry(
        tenant=event.tenant, entry_id=_TOPIC, principal=_TOPIC, source="agent", request=text, response=text,
        created_at_ms=0,
    )  # fmt: skip
