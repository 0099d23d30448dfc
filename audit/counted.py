"""A count with its noun in the right number: `1 memory`, `1,024 memories`."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, one: str, many: str = "") -> str:
    """Return the count and its noun.

    Args:
        count: How many.
        one: The noun for one.
        many: The noun for any other number; empty where it only adds an s.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
