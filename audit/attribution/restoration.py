"""Step 8 of the search: who is put back, since their absence repairs nothing.

Candidates are those whom only events speak against that stay harmful without them. They go back where a replay says
that every event which was cleared stays so; where one does not, only those whose return changes no replay at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.attribution.ablation import leave_out
from audit.attribution.harm import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from audit.attribution.ablation import Ablation, Outcome
    from audit.attribution.measurements import Measurements
    from audit.attribution.retrieval import RankedMemory
    from audit.attribution.search_state import EventState, SearchSettings

__all__ = ["Restoration", "incurable"]


def incurable(states: Mapping[str, EventState]) -> dict[str, EventState]:
    """Return the events whose harm stayed without S, as the scorer saw it."""
    return {
        event_id: state
        for event_id, state in states.items()
        if state.status == "not cleared" and state.after is not None and _harmful(state.after)
    }


class Restoration:
    """Who may go back, over one store. Holds no state of its own.

    Args:
        memory: Retrieval over the store.
        measured: What was replayed.
        settings: Thresholds.
        resembles: Per entry id the ids of entries that evidence ties to it.
    """

    def __init__(
        self,
        memory: RankedMemory,
        measured: Measurements,
        settings: SearchSettings,
        resembles: Mapping[str, Sequence[str]],
    ) -> None:
        self._memory, self._measured, self._settings, self._resembles = memory, measured, settings, resembles

    def idle(
        self, states: Mapping[str, EventState], removed: Collection[str], spared: Mapping[str, Collection[str]]
    ) -> set[str]:
        """Return whom only incurable events speak against; nobody where none is incurable.

        Whom an event spared that was cleared, or who resembles a culprit that stays, was not asked there: they stay.

        Args:
            states: Events by id.
            removed: S.
            spared: Per entry id the events at which it was not measured, since another had convicted it.
        """
        stuck = incurable(states)
        if not stuck:
            return set()
        weak = self._settings.weak_nats
        others = {event_id: state for event_id, state in states.items() if event_id not in stuck}
        idle = {
            entry_id
            for entry_id in removed
            if not any(
                state.alone(entry_id) >= weak or event_id in spared.get(entry_id, ())
                for event_id, state in others.items()
            )
        }
        for culprit in set(removed) - idle:
            idle.difference_update(self._resembles.get(culprit, ()))
        return idle

    def replays(
        self, states: Mapping[str, EventState], removed: Collection[str], idle: Collection[str]
    ) -> list[Ablation]:
        """Return the replays that tell whether cleared events stay so when `idle` go back."""
        kept_out = frozenset(removed) - set(idle)
        return [
            leave_out(event_id, "removal", "text", kept_out)
            for event_id, state in _cleared(states)
            if self._memory.context(state.event.query, kept_out) not in state.replayed
        ]

    def put_back(
        self, states: Mapping[str, EventState], removed: Collection[str], idle: Collection[str]
    ) -> Collection[str]:
        """Read those replays, and return who goes back: all of `idle` where every cleared event stays so."""
        kept_out = frozenset(removed) - set(idle)
        without: dict[str, Outcome] = {}
        for event_id, state in _cleared(states):
            context = self._memory.context(state.event.query, kept_out)
            asked = self._measured.get(leave_out(event_id, "removal", "text", kept_out))
            if asked is not None:
                state.replayed[context] = asked
            without[event_id] = state.replayed[context]
        if any(replay.harm is None or _harmful(replay) for replay in without.values()):
            return self.unseen(states, removed, idle)
        for event_id, replay in without.items():
            states[event_id].after = replay
        return idle

    def unseen(self, states: Mapping[str, EventState], removed: Collection[str], idle: Collection[str]) -> list[str]:
        """Return those of `idle` who can go back, one after the other, while no cleared event's replay changes."""
        found: list[str] = []
        out = frozenset(removed)
        for entry_id in sorted(idle):
            fewer = out - {entry_id}
            if all(
                self._memory.context(state.event.query, fewer) == self._memory.context(state.event.query, out)
                for _, state in _cleared(states)
            ):
                found.append(entry_id)
                out = fewer
        return found


def _cleared(states: Mapping[str, EventState]) -> list[tuple[str, EventState]]:
    return [(event_id, state) for event_id, state in states.items() if state.status == "cleared"]


def _harmful(replay: Outcome) -> bool:
    return replay.harm is not None and replay.harm >= HARMFUL
