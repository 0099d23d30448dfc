"""Cuts long text into overlapping pieces that a small model reads whole.

A writer knows where the cuts fall, and would lay a behaviour across one to have it read in halves; so each piece begins
with the end of the one before.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["OVERLAP_BYTES", "PIECE_BYTES", "pieces"]

PIECE_BYTES = 1_000
"""In UTF-8: about 250 tokens of English, what a MiniLM-sized embedder reads of a text before it stops.

Of rare letters, three tokens each, it is never more tokens than bytes, so that no reader of 1,024 tokens stops in it.
"""

OVERLAP_BYTES = 250
"""What a piece repeats of the one before, at most: a sentence or two."""

_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|\n+")
_WORD = re.compile(r"\S*\s*")


class _Unit(NamedTuple):
    """What is not cut further, with the white space after it."""

    text: str
    size: int
    ends_sentence: bool


def pieces(text: str) -> tuple[str, ...]:
    """Cut visible text into pieces of at most PIECE_BYTES that overlap by up to OVERLAP_BYTES.

    They end with a sentence where one ends in what is new of them, and repeat whole sentences where these are short.
    """
    if _bytes(text) <= PIECE_BYTES:
        return (text.strip(),) if text.strip() else ()
    units = tuple(_units(text))
    found: list[str] = []
    start = seen = 0
    while start < len(units):
        end = _reach(units, start)
        if end < len(units):
            end = next((stop for stop in range(end, seen, -1) if units[stop - 1].ends_sentence), end)
        found.append("".join(unit.text for unit in units[start:end]).strip())
        if end == len(units):
            break
        start, seen = _overlap(units, start, end), end
    return tuple(piece for piece in found if piece)


def _reach(units: Sequence[_Unit], start: int) -> int:
    """Return where a piece must end at the latest."""
    size, end = 0, start
    while end < len(units) and size + units[end].size <= PIECE_BYTES:
        size += units[end].size
        end += 1
    return end


def _overlap(units: Sequence[_Unit], start: int, end: int) -> int:
    """Return where the next piece begins."""
    size, begin = 0, end
    while begin - 1 > start and size + units[begin - 1].size <= OVERLAP_BYTES:
        begin -= 1
        size += units[begin].size
    return begin


def _units(text: str) -> Iterator[_Unit]:
    """Yield sentences; those longer than an overlap in runs of words, and words in runs of letters."""
    starts = [0, *(end.end() for end in _SENTENCE_END.finditer(text))]
    for start, stop in pairwise((*starts, len(text))):
        sentence = text[start:stop]
        if (size := _bytes(sentence)) <= OVERLAP_BYTES:
            yield _Unit(sentence, size, ends_sentence=True)
            continue
        runs = list(_runs(word for long in _WORD.findall(sentence) for word in _short(long)))
        for number, run in enumerate(runs, 1):
            yield _Unit(run, _bytes(run), ends_sentence=number == len(runs))


def _short(word: str) -> Iterator[str]:
    """Cut a word that is longer than an overlap."""
    return _runs(word) if _bytes(word) > OVERLAP_BYTES else iter((word,))


def _runs(parts: Iterator[str] | str) -> Iterator[str]:
    """Join parts, each no longer than an overlap, into runs that are no longer either."""
    run: list[str] = []
    size = 0
    for part in parts:
        more = _bytes(part)
        if run and size + more > OVERLAP_BYTES:
            yield "".join(run)
            run, size = [], 0
        run.append(part)
        size += more
    if run:
        yield "".join(run)


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
