"""Characters that a reader does not see and a model does: controls, formats, blank letters, variation selectors."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

__all__ = ["is_invisible"]

_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters that are letters, marks or symbols to Unicode and nothing at all on a screen."""

_VARIATION_SELECTORS = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
"""Invisible, and any bytes can be spelt with them."""


@lru_cache(maxsize=4096)  # a text uses few characters, and an attacker's many cannot grow it
def is_invisible(character: str) -> bool:
    """Tell whether one character shows nothing of itself; line breaks and tabs are controls, and so are invisible."""
    return (
        unicodedata.category(character) in _CATEGORIES
        or character in _BLANK_LETTERS
        or any(low <= ord(character) <= high for low, high in _VARIATION_SELECTORS)
    )
