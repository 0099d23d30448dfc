"""An attacker who knows CAS: the same question is answered again and again, so that poison agrees with its neighbours.

CAS sums contradictions over an entry's ten nearest neighbours. Ten copies of one poisoned exchange, as ten sessions of
a deterministic agent leave them, are each other's neighbours and entail each other, and where they are retrieved
leaving one of them out lets the next one in: neither half of the paper's score can tell them.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["copies", "copies_of", "repeated"]

T = TypeVar("T")


def copies(text: str) -> int:
    """Read how often, from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.20}: expected 1 or more")
    return int(text)


def repeated(items: Sequence[T], count: int, each: int) -> list[T]:
    """Return `count` items, each of the first ones `each` times; from the first again where they run out."""
    distinct = -(-count // each)
    few = [items[number % len(items)] for number in range(distinct)]
    return [item for item in few for _ in range(each)][:count]


def copies_of(each: int) -> dict[str, int]:
    """What a result's configuration says of them; nothing where there is one each, as in results that are older."""
    return {"copies": each} if each > 1 else {}
