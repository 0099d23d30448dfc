"""The writes of each writer that may be instalments of one act: a short memory, in this process only."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

__all__ = ["Piece", "RecentWrites"]

MAX_WRITERS = 10_000
"""Writers remembered, least recently seen first out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One write that was let in near a tombstone."""

    key: bytes
    """Digest of its content."""

    entry_id: str
    text: str
    """What was read of it."""

    at_ms: int


class RecentWrites:
    """The last pieces of every writer. Not locked: its owner is.

    Only writes near a tombstone are kept, so writes on other matters push none out; `most` later ones that are near one
    do, harmless or not. Keeping more has a price for every writer: a model reads each of them again with every write.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._milliseconds = most, seconds * 1_000
        self._writers: OrderedDict[str, deque[Piece]] = OrderedDict()

    def before(self, writer: str, key: bytes, now_ms: int) -> tuple[Piece, ...]:
        """Return a writer's recent pieces, oldest first, without those of the same content as `key`."""
        kept = self._writers.get(writer)
        if kept is None:
            return ()
        return tuple(piece for piece in kept if piece.key != key and now_ms - piece.at_ms < self._milliseconds)

    def add(self, writer: str, piece: Piece) -> None:
        """Remember a piece; one of the same content as before takes its place."""
        if not self._most:
            return
        kept = self._writers.get(writer)
        if kept is None:
            kept = self._writers[writer] = deque(maxlen=self._most)
            if len(self._writers) > MAX_WRITERS:
                self._writers.popitem(last=False)
        else:
            self._writers.move_to_end(writer)
            for old in kept:
                if old.key == piece.key:
                    kept.remove(old)
                    break
        kept.append(piece)
