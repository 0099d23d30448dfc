"""The search with attribution switched off: it asks what it would ask, convicts nobody, and keeps the largest evidence.

A search that finds nothing goes through every look that one may attribute at: first points, later ones, memories that
moved up, the answer that stays harmful. So the largest evidence of all looks exceeds a threshold just where the search
with that threshold attributes the harm to anybody. Every control memory is asked, as where an attribution depends on
it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memory_audit.attribution.search.attribution_rule import AttributionRule
from memory_audit.attribution.search.settings import WEAK_NATS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container

    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.settings import SearchSettings

__all__ = ["NoAttribution"]


class NoAttribution(AttributionRule):
    """Attributes nothing. See `AttributionRule`."""

    def __init__(self, settings: SearchSettings, entries: int, fits_in: Callable[[str], bool | None]) -> None:
        super().__init__(settings, entries, fits_in)
        self.largest_nats = 0.0
        """Of any memory at any look; 0 where none was measured, or none raises the odds."""

    @property
    def threshold_nats(self) -> float:
        """Whatever is measured may be the largest: its controls are asked."""
        return -math.inf

    def needed_nats(self, entry_id: str, queries: int = 1) -> float:
        """No evidence is enough; see `AttributionRule.needed_nats`."""
        del entry_id, queries
        return math.inf

    def attributes(self, evidence_nats: float, members: Collection[str]) -> bool:
        """Keep the evidence of a set; see `AttributionRule.attributes`."""
        self.largest_nats = max(self.largest_nats, evidence_nats - max(map(self._extra_nats, members)))
        return False

    def attributed_by(self, state: EventState) -> list[str]:
        """See `AttributionRule.attributed_by`."""
        del state
        return []

    def doubted(self, states: Collection[EventState], known: Container[str]) -> Collection[str]:
        """Whatever may be the largest is doubted; see `AttributionRule.doubted`."""
        told = ((name, state.evidence_of(name)) for state in states for name in state.influences if name not in known)
        return {name for name, nats in told if nats >= WEAK_NATS}

    def is_beyond_doubt(self, state: EventState, entry_id: str) -> bool:
        """See `AttributionRule.is_beyond_doubt`."""
        del state, entry_id
        return False

    def attributed(
        self, states: Collection[EventState], known: Container[str], awaited: Container[str] = ()
    ) -> dict[str, str]:
        """Keep the largest evidence; see `AttributionRule.attributed`."""
        del known, awaited
        for state in states:
            for entry_id in state.influences:
                self.largest_nats = max(self.largest_nats, self.evidence_nats(state, entry_id))
        return {}
