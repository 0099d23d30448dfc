"""How often a model was asked again in this process: counted where it is asked, taken by whoever watches the work."""

from __future__ import annotations

from collections import Counter
from typing import Literal

__all__ = ["RETRIES", "Asked", "take_retries"]

Asked = Literal["backbone", "small"]
"""The small models are NLI and the embedder."""

RETRIES: Counter[Asked] = Counter()


def take_retries() -> Counter[Asked]:
    """Return what was counted since the last call, and begin anew."""
    taken = RETRIES.copy()
    RETRIES.clear()
    return taken
