"""A count with its noun in the right number: `1 memory`, `1,024 memories`."""

from __future__ import annotations

__all__ = ["counted"]

_PLURALS = {"hash": "hashes", "leaf": "leaves", "memory": "memories"}
"""Of nouns that do more than add an s."""


def counted(count: int, noun: str) -> str:
    """Return the count and its noun, which is given in the singular."""
    return f"{count:,} {noun if count == 1 else _PLURALS.get(noun, noun + 's')}"
