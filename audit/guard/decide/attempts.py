"""Earlier refusals, held against what would be let in by itself.

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
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.guard.decide.guard_decision import FAILURES
from memory_audit.guard.decide.recent_writes import UNNAMED
from memory_audit.guard.decide.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_audit.guard.blocks.tombstone import HazardTombstone
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.decide.settings import GuardSettings

__all__ = ["Attempts"]


class Attempts:
    """What was refused of late, by writer and by removal. Thread-safe.

    Args:
        settings: After how many refusals what happens.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._by_writer = Refusals(settings.distrust_after, settings.refusals_s)
        self._by_removal = Refusals(settings.alarm_after, settings.refusals_s)
        self._lock = threading.Lock()

    def add(self, writer: str, key: bytes, decision: GuardDecision, now_ms: int) -> None:
        """Count a write, of which `key` is a digest, that was refused for what it says."""
        with self._lock:
            if writer != UNNAMED:
                self._by_writer.add(writer, key, now_ms)
            if decision.tombstone is not None:
                self._by_removal.add(_name(decision.tombstone), key, now_ms)

    def refusal(  # noqa: PLR0913 - a write, and what is known of it
        self,
        writer: str,
        alone: GuardDecision,
        *,
        joins: bool,
        doubted: Sequence[HazardTombstone],
        foreign: Callable[[], bool],
        now_ms: int,
    ) -> GuardDecision | None:
        """Return the refusal of a write that is let in by itself, or None where earlier ones tell nothing.

        Args:
            writer: Whose it is.
            alone: What it says by itself.
            joins: It is near a key.
            doubted: Whose behaviours it may restate.
            foreign: Tells whether no key can tell what it is near.
            now_ms: Now.
        """
        settings = self._settings
        unjudged = alone.reason in FAILURES  # and the policy lets it in
        if not (unjudged or doubted):
            return None
        with self._lock:
            of_writer = 0 if writer == UNNAMED else self._by_writer.count(writer, now_ms)
            attacked = [
                (stone, count)
                for stone in doubted
                if 0 < settings.alarm_after <= (count := self._by_removal.count(_name(stone), now_ms))
            ]
        hours = f"in {settings.refusals_s / 3_600:g} hours"
        in_doubt = bool(doubted) and (joins or foreign())
        if 0 < settings.distrust_after <= of_writer and (unjudged or in_doubt):
            why = f"in doubt, and {of_writer} other writes of this writer were refused {hours}"
            return replace(alone, allowed=False, reason="writer distrusted", detail=why)
        if in_doubt and attacked:
            stone, count = attacked[0]
            why = f"in doubt, and {count} other writes were refused for the same removal {hours}"
            return replace(alone, allowed=False, reason="removal attacked", tombstone=stone, detail=why)
        return None


def _name(stone: HazardTombstone) -> str:
    return f"{stone.tombstone.tenant}\n{stone.tombstone.entry_id}"
