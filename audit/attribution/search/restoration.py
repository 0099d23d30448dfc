"""Step 8 of the search: who is put back, since their absence repairs nothing.

Candidates are those whom only events speak against that stay harmful without them. They go back where a replay says
that every event which was cleared stays so; where one does not, only those whose return changes no replay at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import leave_out
from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Collection

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.attribution.search.state import EventState, SearchState

__all__ = ["put_back", "put_back_unseen", "restore_round"]


def restore_round(search: SearchState) -> list[Ablation]:
    """Return the replays that tell whether cleared events stay so when the candidates go back."""
    kept_out = frozenset(search.removed) - _idle(search)
    return [
        leave_out(event_id, "removal", "text", kept_out)
        for event_id, state in _cleared(search)
        if search.context(state, kept_out) not in state.replayed
    ]


def put_back(search: SearchState) -> None:
    """Read those replays, and put all candidates back where every cleared event stays so."""
    idle = _idle(search)
    kept_out = frozenset(search.removed) - idle
    without: dict[str, Outcome] = {}
    for event_id, state in _cleared(search):
        context = search.context(state, kept_out)
        asked = search.measured.get(leave_out(event_id, "removal", "text", kept_out))
        if asked is not None:
            state.replayed[context] = asked
        without[event_id] = state.replayed[context]
    if any(replay.harm is None or _harmful(replay) for replay in without.values()):
        put_back_unseen(search)
        return
    for event_id, replay in without.items():
        search.states[event_id].after = replay
    _return(search, idle)


def put_back_unseen(search: SearchState) -> None:
    """Put back the candidates who can go, one after the other, while no cleared event's replay changes."""
    found: list[str] = []
    out = frozenset(search.removed)
    for entry_id in sorted(_idle(search)):
        fewer = out - {entry_id}
        if all(search.context(state, fewer) == search.context(state, out) for _, state in _cleared(search)):
            found.append(entry_id)
            out = fewer
    _return(search, found)


def _return(search: SearchState, entries: Collection[str]) -> None:
    """Take entries out of S, and say so at the events that spoke against them."""
    for entry_id in entries:
        del search.removed[entry_id]
    for state in _incurable(search).values() if entries else ():
        if not state.at_large:
            state.reason = "harm stays without the memories that spoke against it alone, and they were put back"


def _idle(search: SearchState) -> set[str]:
    """Return the candidates: whom only incurable events speak against. None where no event is incurable.

    Whom an event spared that was cleared, or who resembles a culprit that stays, was not asked there: they stay. So do
    those that were taken along, and all who were in S then: something may have been taken for their sake.
    """
    stuck = _incurable(search)
    if not stuck:
        return set()
    weak = search.settings.weak_nats
    others = {event_id: state for event_id, state in search.states.items() if event_id not in stuck}
    idle = {
        entry_id
        for entry_id in search.removed.keys() - search.taken - search.settled
        if search.spared_at(entry_id).isdisjoint(others)
        and not any(state.alone(entry_id) >= weak for state in others.values())
    }
    for culprit in search.removed.keys() - search.taken - idle:  # descent alone makes no culprit
        for alike in search.resembles.get(culprit, ()):
            idle.difference_update(search.memory.copies(alike))
    return idle


def _incurable(search: SearchState) -> dict[str, EventState]:
    """Return the events whose harm stayed without S, as the scorer saw it."""
    return {
        event_id: state
        for event_id, state in search.states.items()
        if state.status == "not cleared" and state.after is not None and _harmful(state.after)
    }


def _cleared(search: SearchState) -> list[tuple[str, EventState]]:
    return [(event_id, state) for event_id, state in search.states.items() if state.status == "cleared"]


def _harmful(replay: Outcome) -> bool:
    return replay.harm is not None and replay.harm >= HARMFUL
