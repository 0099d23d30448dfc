"""Writers that were refused again and again.

No reader knows every paraphrase, and whoever may try as often as he likes finds one that it does not know. So a writer
of whose writes several were refused for what they say gets nothing more in that is near a removal, until that is long
enough ago, as guesses of a password are throttled (OWASP ASVS 5.0, V6.3.1). In this process only.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Suspension"]

MAX_WRITERS = 10_000
"""Writers remembered, the one whose last refusal is longest ago first out."""


class Suspension:
    """The last refusals of every writer. Not locked: its owner is.

    Args:
        after: Refused writes of different content from which a writer is suspended; 0 suspends nobody.
        seconds: How long a refusal counts.
    """

    def __init__(self, after: int, seconds: float) -> None:
        self._after, self._milliseconds = after, seconds * 1_000
        self._writers: OrderedDict[str, OrderedDict[bytes, int]] = OrderedDict()

    def add(self, writer: str, key: bytes, now_ms: int) -> None:
        """Count a refusal; `key` is a digest of what was refused, which counts once however often it is sent."""
        if not self._after:
            return
        refused = self._writers.setdefault(writer, OrderedDict())
        refused[key] = now_ms
        refused.move_to_end(key)
        if len(refused) > self._after:
            refused.popitem(last=False)
        self._writers.move_to_end(writer)
        if len(self._writers) > MAX_WRITERS:
            self._writers.popitem(last=False)

    def holds(self, writer: str, now_ms: int) -> bool:
        """Tell whether a writer is suspended."""
        refused = self._writers.get(writer)
        if not self._after or refused is None:
            return False
        return sum(now_ms - at_ms < self._milliseconds for at_ms in refused.values()) >= self._after
