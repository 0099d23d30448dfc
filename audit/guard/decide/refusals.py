"""How often somebody was refused of late, or something was refused for it. In this process only."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Refusals"]

MAX_NAMES = 10_000
"""Names remembered, the one whose last refusal is longest ago first out."""


class Refusals:
    """The last refusals of every name. Not locked: its owner is.

    Args:
        kept: Refusals remembered of each name, the latest; 0 remembers none.
        seconds: How long a refusal counts.
    """

    def __init__(self, kept: int, seconds: float) -> None:
        self._kept, self._milliseconds = kept, seconds * 1_000
        self._names: OrderedDict[str, OrderedDict[bytes, int]] = OrderedDict()

    def add(self, name: str, key: bytes, now_ms: int) -> None:
        """Count a refusal; `key` is a digest of what was refused, which counts once however often it is sent."""
        if not self._kept:
            return
        refused = self._names.setdefault(name, OrderedDict())
        refused[key] = now_ms
        refused.move_to_end(key)
        if len(refused) > self._kept:
            refused.popitem(last=False)
        self._names.move_to_end(name)
        if len(self._names) > MAX_NAMES:
            self._names.popitem(last=False)

    def count(self, name: str, now_ms: int) -> int:
        """Return how many different writes were refused of late; not more than are remembered."""
        refused = self._names.get(name)
        return 0 if refused is None else sum(now_ms - at_ms < self._milliseconds for at_ms in refused.values())
