"""How often a model was asked again in this process: counted where it is asked, taken by whoever watches the work."""

from __future__ import annotations

from collections import Counter

__all__ = ["RETRIES", "take_retries"]

RETRIES: Counter[str] = Counter()
"""By role: `backbone`, or `small`, the NLI model and the embedder."""


def take_retries() -> Counter[str]:
    """Return what was counted since the last call, and begin anew."""
    taken = RETRIES.copy()
    RETRIES.clear()
    return taken
