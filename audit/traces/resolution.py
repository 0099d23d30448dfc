"""Which entry of a store a retrieved document is: by id, by an id in its metadata, by its text, or by a near text.

A document's text is compared with an entry's response, and with request and response together. Where several entries
have it, it is the newest of those that existed at the event's time, else the oldest of the later ones: an import that
knew no times dates all entries alike. An id is not believed where the document shows another text that an entry has:
an agent's memory may be edited in place, and each edit is an entry of its own here.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

from rapidfuzz.distance import Indel
from rapidfuzz.process import extractOne

from memory_audit.text.nfc import few_marks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memory_audit.entry import Entry
    from memory_audit.traces.records import Document

__all__ = ["GUESSES", "Means", "Memories", "Resolved"]

Means = Literal["id", "metadata", "content", "near", "id with another text"]
"""How a document was resolved."""

GUESSES: frozenset[Means] = frozenset({"near", "id with another text"})
"""Those by which it is not sure that the entry's text is what the agent saw; such events say so."""

NEAR = 0.9
"""Least similarity of a near text (normalised Indel distance): a cut end, changed quotes, another spacing of a list."""

LEAST_CHARS = 24
"""Of a near text: shorter ones are alike by chance."""

MOST_CHARS = 2_000
"""Of a near text: the comparison takes time that grows with both lengths."""

MOST_ENTRIES = 20_000
"""Of a tenant, among which near texts are looked for: each document is compared with all."""


class Resolved(NamedTuple):
    """The entry that a document is."""

    entry_id: str
    means: Means


class Memories:
    """What one tenant has and had, to be looked up.

    Args:
        entries: Live and quarantined.
        gone: Ids of those that were removed: their texts are not there any more.
    """

    def __init__(self, entries: Iterable[Entry], gone: Collection[str] = ()) -> None:
        self._ids = {entry.entry_id: entry for entry in entries}
        self._gone = frozenset(gone)
        self._by_text: defaultdict[bytes, list[tuple[int, str]]] = defaultdict(list)
        for entry in self._ids.values():
            for text in {_plain(entry.response), _plain(entry.text)} - {""}:
                self._by_text[_digest(text)].append((entry.created_at_ms, entry.entry_id))
        self._near: dict[str, str] | None = None
        self._guessed: dict[bytes, str | None] = {}

    def resolve(self, document: Document, at_ms: int) -> Resolved | None:
        """Return the entry that a document is; None where nothing tells.

        Args:
            document: As its trace shows it.
            at_ms: When it was retrieved, Unix milliseconds; 0 where that is not known.
        """
        text = _plain(document.text)
        same = self._by_text.get(_digest(text), []) if text else []
        having = {entry_id for _, entry_id in same}
        named = [(document.entry_id, "id"), *((key, "metadata") for key in document.keys)]
        known = [(entry_id, means) for name, means in named if (entry_id := self._known(name)) is not None]
        for entry_id, means in known:
            if not same or entry_id in having:
                shown = entry_id in having or self._may_show(entry_id, text)
                return Resolved(entry_id, means if shown else "id with another text")  # type: ignore[arg-type]
        if same:
            return Resolved(_as_of(same, at_ms), "content")
        near = self._nearest(text)
        return None if near is None else Resolved(near, "near")

    def _known(self, name: str) -> str | None:
        name = unicodedata.normalize("NFC", name)
        return name if name in self._ids or name in self._gone else None

    def _may_show(self, entry_id: str, text: str) -> bool:
        """Tell whether a text may be a part of an entry's, or hold its response; of one that is gone nobody knows."""
        entry = self._ids.get(entry_id)
        if not text or entry is None:
            return True
        response = _plain(entry.response)
        return text in _plain(entry.text) or (bool(response) and response in text)

    def _nearest(self, text: str) -> str | None:
        if not LEAST_CHARS <= len(text) <= MOST_CHARS or len(self._ids) > MOST_ENTRIES:
            return None
        if self._near is None:
            self._near = {
                entry.entry_id: plain
                for entry in self._ids.values()
                if LEAST_CHARS <= len(plain := _plain(entry.response)) <= MOST_CHARS
            }
        key = _digest(text)
        if key not in self._guessed:  # a memory is retrieved again and again
            found = extractOne(text, self._near, scorer=Indel.normalized_similarity, score_cutoff=NEAR)
            self._guessed[key] = None if found is None else found[2]
        return self._guessed[key]


def _as_of(same: list[tuple[int, str]], at_ms: int) -> str:
    before = [item for item in same if item[0] <= at_ms]
    return (max(before) if before else min(same))[1]


def _plain(text: str) -> str:
    """Return a text as it is compared: NFC, white space as one space."""
    return " ".join(unicodedata.normalize("NFC", few_marks(text)).split())


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()
