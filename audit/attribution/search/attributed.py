"""Who is a culprit, by what is measured so far, and whether those whom one event convicts stand out at all."""

from __future__ import annotations

import itertools
import math
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from memory_audit.attribution.search.state import EventState, SearchSettings

__all__ = ["Conviction"]

SMALL_STORE = 12
"""A store of fewer memories is small: a share of it says nothing."""

FEW = 3
"""Fewer memories are no group from which others could stand out."""


class Conviction:
    """The thresholds of evidence over one store.

    Args:
        settings: Thresholds in nats, shares of the store.
        entries: Memories in the store.
        anomaly: CAS per entry id (eq. 8): a memory that fits in better than the median one needs more evidence.
    """

    def __init__(self, settings: SearchSettings, entries: int, anomaly: Mapping[str, float]) -> None:
        self._settings, self._entries, self._anomaly = settings, entries, anomaly
        self._usual = median(anomaly.values()) if anomaly else 0.0

    def needed(self, entry_id: str) -> float:
        """Evidence in nats that convicts this memory at one event."""
        fits = self._anomaly.get(entry_id, self._usual) < self._usual
        return self._settings.culprit_nats + (self._settings.fitting_nats if fits else 0.0)

    def by(self, state: EventState) -> list[str]:
        """Memories that one event convicts."""
        return [entry_id for entry_id in state.influences if state.alone(entry_id) >= self.needed(entry_id)]

    def culprits(
        self, states: Mapping[str, EventState], known: Container[str], waiting: Container[str] = ()
    ) -> dict[str, str]:
        """Convict at one event, or over all: what exceeds `weak_nats` adds up, and what falls short of it subtracts.

        Who was acquitted in a group did nothing there. Events of one query are one, whatever else they retrieved: a
        memory that is shown alone makes the same prompt, a replay that is repeated tells nothing new, and who reports
        an incident often enough could otherwise have any memory removed. The one that says most counts.

        Args:
            states: Events by id.
            known: Entries that are in S already.
            waiting: Entries that not every event has told of yet: for these nothing adds up, since what is still to
                come may subtract.

        Returns:
            Entry id to the reason, for those who are not.
        """
        measured: dict[str, dict[str, tuple[float, str]]] = {}
        for event_id, state in states.items():
            asked = state.event.query
            told = {entry_id: influence.sufficiency_nats for entry_id, influence in state.influences.items()}
            for entry_id, nats in (dict.fromkeys(state.acquitted, 0.0) | told).items():
                if entry_id not in known and nats is not None:
                    of_entry, gain = measured.setdefault(entry_id, {}), (nats, event_id)
                    of_entry[asked] = max(of_entry.get(asked, gain), gain)
        weak = self._settings.weak_nats
        found: dict[str, str] = {}
        for entry_id, by_question in sorted(measured.items()):
            gains = list(by_question.values())
            needed = self.needed(entry_id)
            alone, event_id = max(gains)
            total = math.fsum(gain - weak for gain, _ in gains)
            if alone >= needed:
                found[entry_id] = f"alone raises the odds of the harm in {event_id} by {alone:.1f} nats"
            elif total >= needed - weak and entry_id not in waiting:
                found[entry_id] = (
                    f"alone raises the odds of the harm in {len(gains)} events, by {alone:.1f} nats and less: by "
                    f"{total:.1f} more than {weak:.1f} each"
                )
        return found

    def is_most(self, count: int) -> bool:
        """Tell whether so many memories are more of the store than S may be."""
        return self._entries >= SMALL_STORE and count > self._settings.most_of_store * self._entries

    def is_large(self, count: int) -> bool:
        """Tell whether so many memories are a large share of the store."""
        return self._entries >= SMALL_STORE and count >= self._settings.large_share * self._entries

    def is_crowd(self, state: EventState) -> bool:
        """Tell whether an event convicts a large share of the store of which nobody stands out, or late in the answer.

        What a memory adds runs from little to much without a gap: the model is swayed by what any memory says. And
        where the first half of the partings that it may have told nothing, later ones split a store by its style: of
        many one always does, with a gap too, and without half of the store any answer is another one.
        """
        return self.is_large(len(self.by(state))) and (self.is_late(state) or not self._stands_out(state))

    def is_late(self, state: EventState) -> bool:
        """Tell whether an event is asked at partings of the second half, those before being style or form."""
        return not state.speaks and state.style >= self._settings.most_points // 2

    def _stands_out(self, state: EventState) -> bool:
        """Tell whether a gap parts those measured at an event, with at least three below it who are no culprits."""
        gains = sorted(item.sufficiency_nats for item in state.influences.values() if item.sufficiency_nats is not None)
        below = [gain for gain in gains if gain < self._settings.culprit_nats]
        steps = list(itertools.pairwise(gains))[FEW - 1 : len(below)]
        return len(below) < FEW or any(above - gain >= self._settings.weak_nats for gain, above in steps)
