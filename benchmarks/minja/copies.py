"""An attacker who knows CAS: the same question is answered again and again, so that poison agrees with its neighbours.

CAS sums contradictions over an entry's ten nearest neighbours. Ten copies of one poisoned exchange, as ten sessions of
a deterministic agent leave them, are each other's neighbours and entail each other, and where they are retrieved
leaving one of them out lets the next one in: neither half of the paper's score can tell them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["copies_of", "repeated"]

T = TypeVar("T")


def repeated(items: Sequence[T], count: int, copies: int) -> list[T]:
    """Return `count` items, each of the first ones `copies` times; from the first again where they run out."""
    distinct = -(-count // copies)
    few = [items[number % len(items)] for number in range(distinct)]
    return [item for item in few for _ in range(copies)][:count]


def copies_of(copies: int) -> dict[str, int]:
    """What a result's configuration says of them; nothing where there is one each, as in results that are older."""
    return {"copies": copies} if copies > 1 else {}
