"""The writes of each writer that may be instalments of one behaviour: a short memory, in this process only."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass, replace

__all__ = ["UNNAMED", "Piece", "RecentWrites"]

UNNAMED = "unknown"
"""Principal of a write that names none: many writers' name, whose writes are no instalments of one behaviour."""

MAX_WRITERS = 10_000
"""Writers remembered, least recently seen first out."""

MAX_BYTES = 32 << 20
"""Of texts remembered, likewise: 4,000 of the longest writes, or 40,000 ordinary ones; writers may name themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One write that was let in near a tombstone."""

    key: bytes
    """Digest of its content."""

    entry_id: str
    text_forms: tuple[tuple[int, str], ...]
    """What was read of it, each with its place: nearest to a key first."""

    at_ms: int

    @property
    def text(self) -> str:
        """All that is kept of it, in its order."""
        return " ".join(text for _, text in sorted(self.text_forms))

    @property
    def size_bytes(self) -> int:
        """In memory."""
        return sum(sys.getsizeof(text) for _, text in self.text_forms)

    def nearest(self, most: int) -> Piece:
        """Return it with so many forms at most."""
        return replace(self, text_forms=self.text_forms[:most])


class RecentWrites:
    """The last pieces of every writer, as long as they are recent. Not locked: its owner is.

    Only writes near a tombstone are kept, so writes on other matters push none out; `most` later ones that are near one
    do, harmless or not. Keeping more has a price for every writer: a model reads each of them again with every write.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._milliseconds = most, seconds * 1_000
        self._writers: OrderedDict[str, tuple[Piece, ...]] = OrderedDict()
        self.size_bytes = 0
        """Of all pieces."""

    def before(self, writer: str, key: bytes, now_ms: int) -> tuple[Piece, ...]:
        """Return a writer's recent pieces, oldest first, without those of the same content as `key`."""
        kept = self._writers.get(writer, ())
        return tuple(piece for piece in kept if piece.key != key and self._is_recent(piece, now_ms))

    def add(self, writer: str, piece: Piece) -> None:
        """Remember a piece; one of the same content as before takes its place."""
        if not self._most:
            return
        kept = (*(old for old in self._forget(writer) if old.key != piece.key), piece)[-self._most :]
        self._writers[writer] = kept
        self.size_bytes += sum(one.size_bytes for one in kept)
        while len(self._writers) > 1:
            first, pieces = next(iter(self._writers.items()))
            full = len(self._writers) > MAX_WRITERS or self.size_bytes > MAX_BYTES
            if not full and self._is_recent(pieces[-1], piece.at_ms):
                break
            self._forget(first)

    def _is_recent(self, piece: Piece, now_ms: int) -> bool:
        return now_ms - piece.at_ms < self._milliseconds

    def _forget(self, writer: str) -> tuple[Piece, ...]:
        gone = self._writers.pop(writer, ())
        self.size_bytes -= sum(one.size_bytes for one in gone)
        return gone
