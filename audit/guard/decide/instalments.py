"""One writer's writes read together: a behaviour may come in instalments.

What is long only together is not refused for that: of the oldest less is read, what is nearest to a key, until a model
can read all, and of the write itself where it leaves no room.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_audit.guard.decide.judge import MOST_REMEMBERED
from memory_audit.guard.text.chunks import pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.guard.decide.judge import Verdict
    from memory_audit.guard.decide.write import Write

__all__ = ["Instalment", "fitting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instalment:
    """One write that was let in near a tombstone."""

    key: bytes
    """Digest of its content."""

    entry_id: str
    text_forms: tuple[tuple[int, str], ...]
    """What was read of it, each with its place: nearest to a key first."""

    at_ms: int

    @classmethod
    def of(cls, write: Write, verdict: Verdict, now_ms: int) -> Instalment:
        """Return what is kept of a write."""
        kept = tuple((place, write.texts.forms[place]) for place in verdict.nearest)
        return cls(key=write.key, entry_id=write.entry.entry_id, text_forms=kept, at_ms=now_ms)

    @property
    def text(self) -> str:
        """All that is kept of it, in its order."""
        return " ".join(text for _, text in sorted(self.text_forms))

    @property
    def size_bytes(self) -> int:
        """In memory."""
        return sum(sys.getsizeof(text) for _, text in self.text_forms)

    def nearest(self, most: int) -> Instalment:
        """Return it with so many forms at most."""
        return replace(self, text_forms=self.text_forms[:most])


def fitting(writes: tuple[Instalment, ...], most: int) -> tuple[tuple[Instalment, ...], tuple[str, ...]]:
    """Return of writes, of which the last is new, what makes at most so many texts, and these texts.

    As many of the latest as fit are whole. With those before them, and with the new one where not even one before it
    fits, that one shortened to half of the texts, come the forms of each that are nearest to a key, as many as fit. The
    new one stays alone if nothing fits.
    """
    *older, new = writes
    for first in range(len(older)):
        kept = writes[first:]
        texts = _joined(kept)
        if len(texts) <= most:
            older = older[:first]
            break
    else:
        cuts = (new.nearest(count) for count in range(MOST_REMEMBERED, 0, -1))
        kept = (next((cut for cut in cuts if len(_joined((cut,))) <= most // 2), new.nearest(1)),) if older else (new,)
        texts = _joined(kept)
    for first in range(len(older)):
        for count in range(1 if first else MOST_REMEMBERED, 0, -1):
            cut = (*(write.nearest(count) for write in older[first:]), *kept)
            if len(found := _joined(cut)) <= most:
                return cut, found
    return kept, texts


def _joined(writes: Sequence[Instalment]) -> tuple[str, ...]:
    return pieces(" ".join(write.text for write in writes))
