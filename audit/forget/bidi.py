"""The order in which text is displayed where it overrides its direction (UAX #9, X4 to X7).

U+202E makes what follows appear right to left, to the next U+202C or the end of the paragraph: "\u202elanif\u202c" is
shown as "final". A person reads the one, a language model the other, so that either may be what an attacker means.
Overrides and their nesting are followed; embeddings, isolates and letters that run right to left by nature are left as
they are stored.
"""

from __future__ import annotations

__all__ = ["displayed"]

_RIGHT_TO_LEFT = "\u202e"
_OPENING = "\u202a\u202b\u202d\u202e"  # embeddings and overrides; all are ended by the same character
_CLOSING = "\u202c"
_PARAGRAPH_ENDS = "\n\r\x1c\x1d\x1e\x85\u2029"

_MAX_DEPTH = 125
"""Runs within runs that are followed, no fewer than the standard's levels (BD2); opening more has no effect."""


def displayed(text: str) -> str:
    """Return text with what is overridden to run right to left turned round, without the characters that say so."""
    if _RIGHT_TO_LEFT not in text:
        return text
    shown: list[str] = []
    open_runs: list[tuple[bool, list[str]]] = []  # whether it runs right to left, and its parts
    beyond = 0
    for character in text:
        if character in _PARAGRAPH_ENDS:
            while open_runs:
                _close(open_runs, shown)
            beyond = 0
            shown.append(character)
        elif character in _OPENING and len(open_runs) == _MAX_DEPTH:
            beyond += 1
        elif character in _OPENING:
            open_runs.append((character == _RIGHT_TO_LEFT, []))
        elif character == _CLOSING:
            if beyond:
                beyond -= 1
            elif open_runs:
                _close(open_runs, shown)
        else:
            (open_runs[-1][1] if open_runs else shown).append(character)
    while open_runs:
        _close(open_runs, shown)
    return "".join(shown)


def _close(open_runs: list[tuple[bool, list[str]]], shown: list[str]) -> None:
    """End the innermost run: it is one part of what surrounds it."""
    turned, parts = open_runs.pop()
    (open_runs[-1][1] if open_runs else shown).append("".join(reversed(parts) if turned else parts))
