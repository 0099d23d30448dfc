"""The order in which text is displayed where it overrides its direction (UAX #9, X1 to X8 and L2).

U+202E makes what follows appear right to left, to the next U+202C or the end of the paragraph: "\u202elanif\u202c" is
shown as "final". A person reads the one, a language model the other, so that either may be what an attacker means.
Overrides, embeddings and isolates are followed; a letter that no override covers is taken for one that runs left to
right, as Latin ones do.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["displayed"]

_RIGHT_TO_LEFT = "\u202e"
_OPENING = {  # whether it runs right to left, overrides, isolates
    "\u202a": (False, False, False),
    "\u202b": (True, False, False),
    "\u202d": (False, True, False),
    "\u202e": (True, True, False),
    "\u2066": (False, False, True),
    "\u2067": (True, False, True),
    "\u2068": (False, False, True),  # the first strong letter decides: a Latin one
}
_POP, _POP_ISOLATE = "\u202c", "\u2069"
_PARAGRAPH_ENDS = "\n\r\x1c\x1d\x1e\x85\u2029"
_MAX_DEPTH = 125
"""Highest embedding level (BD2)."""


class _Run(NamedTuple):
    """An entry of the directional status stack."""

    level: int
    turned: bool
    """Letters are made to run right to left."""

    isolate: bool


def displayed(text: str) -> str:
    """Return text in the order in which it is shown, without the characters that give it; as it is without U+202E."""
    if _RIGHT_TO_LEFT not in text:
        return text
    shown: list[str] = []
    for ends, characters in groupby(text, _PARAGRAPH_ENDS.__contains__):
        paragraph = "".join(characters)
        shown.append(paragraph if ends else _reordered(_levels(paragraph)))
    return "".join(shown)


def _levels(paragraph: str) -> list[tuple[str, int]]:
    """Return what is shown, each character with its embedding level (X1 to X8, I1 and I2).

    Of what opens and closes isolates an empty string stays: it parts the runs on its sides.
    """
    stack = [_Run(0, turned=False, isolate=False)]
    overflown = overflown_isolates = 0
    placed: list[tuple[str, int]] = []

    def place(shown: str) -> None:
        level = stack[-1].level
        placed.append((shown, level + (level % 2 != stack[-1].turned)))

    for character in paragraph:
        if character in _OPENING:
            turned, overrides, isolate = _OPENING[character]
            if isolate:
                place("")
            level = stack[-1].level + 1 + (stack[-1].level % 2 == turned)
            if level <= _MAX_DEPTH and not overflown and not overflown_isolates:
                stack.append(_Run(level, turned=overrides and turned, isolate=isolate))
            elif isolate:
                overflown_isolates += 1
            elif not overflown_isolates:
                overflown += 1
        elif character == _POP_ISOLATE:
            if overflown_isolates:
                overflown_isolates -= 1
            elif any(run.isolate for run in stack):
                overflown = 0
                while not stack.pop().isolate:
                    pass
            place("")
        elif character != _POP:
            place(character)
        elif not overflown_isolates:
            if overflown:
                overflown -= 1
            elif len(stack) > 1 and not stack[-1].isolate:
                stack.pop()
    return placed


def _reordered(placed: Iterable[tuple[str, int]]) -> str:
    """Reverse every run of characters at a level and above, from the highest level down to the lowest odd one (L2).

    A run of one level is turned once at each level up to its own: it ends up turned where that is odd.
    """
    runs = [
        ("".join(character for character, _ in run)[:: -1 if level % 2 else 1], level)
        for level, run in groupby(placed, lambda item: item[1])
    ]
    for lowest in range(max((level for _, level in runs), default=0), 0, -1):
        turned: list[tuple[str, int]] = []
        above: list[tuple[str, int]] = []
        for run in runs:
            if run[1] >= lowest:
                above.append(run)
            else:
                turned += [*reversed(above), run]
                above = []
        runs = [*turned, *reversed(above)]
    return "".join(text for text, _ in runs)
