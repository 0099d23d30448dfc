"""To which memories the harm is attributed by what is measured so far, and whether an event's effect is diffuse."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from memory_audit.attribution.evidence import evidence
from memory_audit.attribution.search.settings import MOST_POINTS, WEAK_NATS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container

    from memory_audit.attribution.evidence import Influence
    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.settings import SearchSettings

__all__ = ["AttributionRule"]

DOUBT_NATS = 2.0
"""Evidence beyond what attributes, in nats, from which it is not asked what a memory did in the harmful run. With a
calibration it is asked always, as of the clean incidents."""

SMALL_STORE = 12
"""A store of fewer memories is small: a share of it says nothing."""

FEW = 3
"""Fewer memories are no group from which others could stand out."""

MOST_OF_STORE = 0.75
"""Largest share of a store that S may be. An effect of nearly every memory is diffuse, or the store is beyond repair by
removal: go back to an older snapshot."""

LARGE_SHARE = 0.25
"""Share of a store from which the memories that one event attributes must stand out, and end its harm: a gap of
`WEAK_NATS` separates them from others measured there. Without one the effect is diffuse."""


class AttributionRule:
    """When measured evidence attributes the harm to a memory of one store.

    Args:
        settings: Thresholds in nats, shares of the store.
        entries: Memories in the store.
        fits_in: Tells of an entry id whether the memory is more consistent than the median one (CAS, eq. 8), and needs
            more evidence; None where that is not known.
    """

    def __init__(self, settings: SearchSettings, entries: int, fits_in: Callable[[str], bool | None]) -> None:
        self._settings, self._entries, self.fits_in = settings, entries, fits_in

    @property
    def threshold_nats(self) -> float:
        """The least evidence, in nats, that attributes the harm of one event to any memory."""
        return self._settings.threshold_nats()

    def needed_nats(self, entry_id: str, queries: int = 1) -> float:
        """Rise of the odds, in nats, that attributes the harm to this memory, tried at so many unlike queries."""
        return self._settings.threshold_nats(queries) + self._extra_nats(entry_id)

    def attributes(self, evidence_nats: float, members: Collection[str]) -> bool:
        """Tell whether evidence, in nats, attributes the harm of one event to these memories together."""
        return evidence_nats >= max(map(self.needed_nats, members))

    def evidence_nats(self, state: EventState, entry_id: str) -> float:
        """What an event says against a memory: the number that is held against the threshold."""
        return state.evidence_of(entry_id) - self._extra_nats(entry_id)

    def _extra_nats(self, entry_id: str) -> float:
        return self._settings.consistent_extra_nats if self.fits_in(entry_id) else 0.0

    def attributed_by(self, state: EventState) -> list[str]:
        """Memories to which one event alone attributes its harm."""
        return [entry_id for entry_id in state.influences if self._reaches(state, entry_id)]

    def _reaches(self, state: EventState, entry_id: str, beyond_nats: float = 0.0) -> bool:
        return state.evidence_of(entry_id) >= self.needed_nats(entry_id) + beyond_nats

    def doubted(self, states: Collection[EventState], known: Container[str]) -> Collection[str]:
        """Memories that are about to be attributed: what speaks for them is asked first."""
        return self.attributed(states, known)

    def is_beyond_doubt(self, state: EventState, entry_id: str) -> bool:
        """Tell whether it need not be asked what a memory did in the harmful run."""
        return self._reaches(state, entry_id, DOUBT_NATS) and not self._settings.is_calibrated

    def is_firm(self, state: EventState, entry_id: str) -> bool:
        """Tell whether evidence names a memory though the harm stays without it: where nothing measured was wording."""
        return state.where.retired == 0 and self._reaches(state, entry_id)

    def attributed(
        self, states: Collection[EventState], known: Container[str], awaited: Container[str] = ()
    ) -> dict[str, str]:
        """Attribute at one event, or over all: what exceeds `WEAK_NATS` adds up, and what falls short of it subtracts.

        A memory that was screened out in a group did nothing there. Events of one query are one, whatever else they
        retrieved: a memory that is shown alone makes the same prompt, and a replay that is repeated tells nothing new.
        Whoever reports an incident often enough could otherwise have any memory removed. The one that says most counts.

        Args:
            states: All events.
            known: Entries that are in S already.
            awaited: Entries that some events have not measured yet: for these nothing adds up, since what is still to
                come may subtract.

        Returns:
            Entry id to the reason, for those that are not.
        """
        measured: dict[str, dict[str, tuple[float, str]]] = {}
        for state in states:
            asked = state.event.query
            told = {entry_id: _counted(influence) for entry_id, influence in state.influences.items()}
            for entry_id, nats in (dict.fromkeys(state.screening.cleared, 0.0) | told).items():
                if entry_id not in known and nats is not None:
                    of_entry, gain = measured.setdefault(entry_id, {}), (nats, state.event_id)
                    of_entry[asked] = max(of_entry.get(asked, gain), gain)
        by_id = {state.event_id: state for state in states}
        found: dict[str, str] = {}
        for entry_id, by_question in sorted(measured.items()):
            gains = list(by_question.values())
            needed = self.needed_nats(entry_id, len(gains))
            alone, event_id = max(gains)
            total = math.fsum(gain - WEAK_NATS for gain, _ in gains)
            if alone >= needed:
                how = _how(by_id[event_id].influences[entry_id])
                found[entry_id] = f"{how} the odds of the harm in {event_id} by {alone:.1f} nats"
            elif not self._settings.is_calibrated and total >= needed - WEAK_NATS and entry_id not in awaited:
                found[entry_id] = (
                    f"alone raises the odds of the harm in {len(gains)} events, by {alone:.1f} nats and less: by "
                    f"{total:.1f} more than {WEAK_NATS:.1f} each"
                )
        return found

    def is_most_of_store(self, count: int) -> bool:
        """Tell whether so many memories are more of the store than S may be."""
        return self._entries >= SMALL_STORE and count > MOST_OF_STORE * self._entries

    def is_large_share(self, count: int) -> bool:
        """Tell whether so many memories are a large share of the store."""
        return self._entries >= SMALL_STORE and count >= LARGE_SHARE * self._entries

    def is_diffuse(self, state: EventState) -> bool:
        """Tell whether an event attributes a large share of the store without a gap, or late in the answer.

        Without a gap, what a memory adds runs from little to much: the model is moved by whatever any memory says. And
        where the first half of the divergence points told nothing, later ones split a store by its wording. Of many one
        always does, with a gap too, and without half of the store any answer is another one.
        """
        return self.is_large_share(len(self.attributed_by(state))) and (
            self.is_late(state) or not self._stands_out(state)
        )

    def is_late(self, state: EventState) -> bool:
        """Tell whether an event is asked at divergence points of the second half, earlier ones being retired."""
        return not state.where.measures_span and state.where.retired >= MOST_POINTS // 2

    def _stands_out(self, state: EventState) -> bool:
        """Tell whether a gap splits what was measured at an event, with at least three memories below the threshold."""
        gains = sorted(nats for item in state.influences.values() if (nats := _counted(item)) is not None)
        below = [gain for gain in gains if gain < self.threshold_nats]
        steps = list(itertools.pairwise(gains))[FEW - 1 : len(below)]
        return len(below) < FEW or any(above - gain >= WEAK_NATS for gain, above in steps)


def _counted(influence: Influence) -> float | None:
    """Return what one event says of a memory; what explains too little of the way is no more than weak."""
    nats = evidence(influence)
    return min(influence.sufficiency_nats or 0.0, WEAK_NATS) if nats == 0.0 else nats


def _how(influence: Influence) -> str:
    """Say which term of the evidence it is."""
    alone, absent = influence.sufficiency_nats, influence.necessity_nats
    return "alone raises" if absent is None or (alone is not None and alone >= absent) else "by its absence lowers"
