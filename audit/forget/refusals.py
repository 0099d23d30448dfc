"""How often writers were refused of late.

No reader knows every paraphrase, and whoever may try often finds one that it does not know. So a writer of whom some
writes were refused for what they say is given no more benefit of the doubt, until that is long enough ago, as guesses
of a password are throttled (OWASP ASVS 5.0, V6.3.1). That comes early, since it costs an honest writer next to nothing.
To let nothing more in of such a writer that is near a removal is stricter, and for those to choose whose writers each
have a name: where many write under one, any of them brings it on all. In this process only.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Refusals"]

MAX_WRITERS = 10_000
"""Writers remembered, the one whose last refusal is longest ago first out."""


class Refusals:
    """The last refusals of every writer. Not locked: its owner is.

    Args:
        kept: Refusals remembered of each writer, the latest; 0 remembers nobody.
        seconds: How long a refusal counts.
    """

    def __init__(self, kept: int, seconds: float) -> None:
        self._kept, self._milliseconds = kept, seconds * 1_000
        self._writers: OrderedDict[str, OrderedDict[bytes, int]] = OrderedDict()

    def add(self, writer: str, key: bytes, now_ms: int) -> None:
        """Count a refusal; `key` is a digest of what was refused, which counts once however often it is sent."""
        if not self._kept:
            return
        refused = self._writers.setdefault(writer, OrderedDict())
        refused[key] = now_ms
        refused.move_to_end(key)
        if len(refused) > self._kept:
            refused.popitem(last=False)
        self._writers.move_to_end(writer)
        if len(self._writers) > MAX_WRITERS:
            self._writers.popitem(last=False)

    def count(self, writer: str, now_ms: int) -> int:
        """Return how many different writes of a writer were refused of late; not more than are remembered."""
        refused = self._writers.get(writer)
        return 0 if refused is None else sum(now_ms - at_ms < self._milliseconds for at_ms in refused.values())
