"""What was written and refused of late, held against what would be let in by itself. In this process only.

No reader knows every paraphrase, and whoever may try often finds one that it does not know. But most of what such a one
sends is refused, and that makes it likelier that the rest is no better. So for a day there is no benefit of the doubt

- for a writer of whom some writes were refused for what they say,
- for whomever, about a removal that some writes were refused for: who tries under ever new names is known by what he
  tries;

and what the behaviour of a write leaves in doubt is refused. Both come early, since what is clearly safe is let in as
before: honest writers pay with what is in doubt alone. (Guesses of a password are throttled likewise: OWASP ASVS 5.0,
V6.3.1.)
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.guard.blocks.tombstone import HazardTombstone
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.decide.instalments import Instalment
    from memory_audit.guard.decide.settings import HistorySettings
    from memory_audit.guard.decide.write import Write

__all__ = ["History", "Past", "RecentWrites", "Refusals"]

MAX_NAMES = 10_000
"""Writers and removals remembered, the one whose last refusal is longest ago first out."""

MAX_WRITERS = 10_000
"""Writers of recent writes, least recently seen first out."""

MAX_BYTES = 32 << 20
"""Of texts remembered, likewise: 4,000 of the longest writes, or 40,000 ordinary ones; writers may name themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What counts for a write that comes now."""

    refused: int
    """Other writes of its writer that were refused for what they say."""

    attacked: tuple[tuple[HazardTombstone, int], ...]
    """Of the removals that it may restate, those for which writes were refused, and how many."""

    recent: tuple[Instalment, ...]
    """Its writer's recent writes, oldest first, without those of the same content."""


class History:
    """What was written and refused of late, by writer and by removal. Thread-safe.

    Args:
        settings: How much is kept, and after how many refusals what happens.
    """

    def __init__(self, settings: HistorySettings) -> None:
        self._settings = settings
        self._by_writer = Refusals(settings.distrust_after, settings.refusals_s)
        self._by_removal = Refusals(settings.alarm_after, settings.refusals_s)
        self._recent = RecentWrites(settings.recent_writes, settings.recent_s)
        self._lock = threading.Lock()

    def before(self, write: Write, doubted: Sequence[HazardTombstone], now_ms: int) -> Past:
        """Return what is known before a write is decided on; `doubted` are tombstones that it may restate."""
        with self._lock:
            counts = [(stone, self._by_removal.count(_name(stone), now_ms)) for stone in doubted]
            return Past(
                refused=self._by_writer.count(write.writer, now_ms) if write.writer else 0,
                attacked=tuple((stone, count) for stone, count in counts if count),
                recent=self._recent.before(write.writer, write.key, now_ms) if write.writer else (),
            )

    def after(
        self, write: Write, decision: GuardDecision, now_ms: int, *, piece: Instalment | None, past: Past | None
    ) -> bool:
        """Keep what counts later of a write that was decided on.

        Args:
            write: The write.
            decision: On it.
            now_ms: Now.
            piece: What is kept of it where it is let in; None where it is no instalment.
            past: What it was decided with.

        Returns:
            False where its writer wrote meanwhile: it has to be decided on again, and nothing is kept.
        """
        writer = write.writer
        if piece is not None and past is not None and decision.allowed and writer:
            with self._lock:
                if self._recent.before(writer, write.key, now_ms) != past.recent:
                    return False
                self._recent.add(writer, piece)
        elif decision.paraphrased:
            with self._lock:
                if writer:
                    self._by_writer.add(writer, write.key, now_ms)
                if decision.tombstone is not None:
                    self._by_removal.add(_name(decision.tombstone), write.key, now_ms)
        return True

    def refusal(self, alone: GuardDecision, past: Past, *, in_doubt: bool) -> GuardDecision | None:
        """Return the refusal of a write that is let in by itself, or None where earlier ones tell nothing.

        Args:
            alone: What it says by itself.
            past: From `before`.
            in_doubt: It may restate a removed behaviour.
        """
        settings = self._settings
        hours = f"in {settings.refusals_s / 3_600:g} hours"
        if 0 < settings.distrust_after <= past.refused and (in_doubt or alone.failed):
            why = f"in doubt, and {past.refused} other writes of this writer were refused {hours}"
            return replace(alone, allowed=False, reason="writer distrusted", detail=why)
        for stone, count in past.attacked:
            if 0 < settings.alarm_after <= count and in_doubt:
                why = f"in doubt, and {count} other writes were refused for the same removal {hours}"
                return replace(alone, allowed=False, reason="removal attacked", tombstone=stone, detail=why)
        return None


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


class RecentWrites:
    """The last writes of every writer, as long as they are recent. Not locked: its owner is.

    Only writes near a tombstone are kept, so writes on other matters push none out; `most` later ones that are near one
    do, harmless or not. Keeping more has a price for every writer: a model reads each of them again with every write.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._milliseconds = most, seconds * 1_000
        self._writers: OrderedDict[str, tuple[Instalment, ...]] = OrderedDict()
        self.size_bytes = 0
        """Of all writes."""

    def before(self, writer: str, key: bytes, now_ms: int) -> tuple[Instalment, ...]:
        """Return a writer's recent writes, oldest first, without those of the same content as `key`."""
        kept = self._writers.get(writer, ())
        return tuple(piece for piece in kept if piece.key != key and self._is_recent(piece, now_ms))

    def add(self, writer: str, piece: Instalment) -> None:
        """Remember a write; one of the same content as before takes its place."""
        if not self._most:
            return
        kept = (*(old for old in self._forget(writer) if old.key != piece.key), piece)[-self._most :]
        self._writers[writer] = kept
        self.size_bytes += sum(one.size_bytes for one in kept)
        while len(self._writers) > 1:
            first, pieces = next(iter(self._writers.items()))
            full = len(self._writers) > MAX_WRITERS or self.size_bytes > MAX_BYTES
            if not full and self._is_recent(pieces[-1], piece.at_ms):
                break
            self._forget(first)

    def _is_recent(self, piece: Instalment, now_ms: int) -> bool:
        return now_ms - piece.at_ms < self._milliseconds

    def _forget(self, writer: str) -> tuple[Instalment, ...]:
        gone = self._writers.pop(writer, ())
        self.size_bytes -= sum(one.size_bytes for one in gone)
        return gone


def _name(stone: HazardTombstone) -> str:
    return f"{stone.tombstone.tenant}\n{stone.tombstone.entry_id}"
