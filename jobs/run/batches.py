"""Long work cut into pieces: the bar moves, an interruption costs one, and the disk holds few files."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["pieces"]

T = TypeVar("T")

AT_MOST = 128


def pieces(items: Sequence[T], least: int = 256) -> Iterator[Sequence[T]]:
    """Yield items in at most AT_MOST pieces of at least `least`, but for the last."""
    size = max(least, -(-len(items) // AT_MOST))
    for start in range(0, len(items), size):
        yield items[start : start + size]
