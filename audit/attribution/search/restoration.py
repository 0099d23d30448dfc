"""Step 8 of the search: which memories are put back, since their absence repairs nothing.

Candidates are attributed only by events that stay harmful without them. They go back where a replay says that every
event which was cleared stays so; where one does not, only those whose return changes no replay at all.
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
    kept_out = frozenset(search.removed) - _put_back_candidates(search)
    return [
        leave_out(event_id, "removal", "text", kept_out)
        for event_id, state in _cleared(search)
        if search.context(state, kept_out) not in state.replayed
    ]


def put_back(search: SearchState) -> None:
    """Read those replays, and put all candidates back where every cleared event stays so."""
    idle = _put_back_candidates(search)
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
    """Put back the candidates one after the other, while no cleared event's replay changes."""
    found: list[str] = []
    out = frozenset(search.removed)
    for entry_id in sorted(_put_back_candidates(search)):
        fewer = out - {entry_id}
        if all(search.context(state, fewer) == search.context(state, out) for _, state in _cleared(search)):
            found.append(entry_id)
            out = fewer
    _return(search, found)


def _return(search: SearchState, entries: Collection[str]) -> None:
    """Take entries out of S, and say so at the events that attributed their harm to them."""
    for entry_id in entries:
        del search.removed[entry_id]
    for state in _still_harmful(search).values() if entries else ():
        if not state.excluded:
            state.reason = (
                "harm stays without the memories that this event alone attributes it to, and they were put back"
            )


def _put_back_candidates(search: SearchState) -> set[str]:
    """Return the candidates: attributed only by events that stay harmful. None where no event does.

    An entry that a cleared event skipped, or that resembles an attributed one which stays, was not asked there: it
    stays. So do derived entries, and all that were in S when these were added: they may be ancestors.
    """
    stuck = _still_harmful(search)
    if not stuck:
        return set()
    weak = search.settings.weak_nats
    others = {event_id: state for event_id, state in search.states.items() if event_id not in stuck}
    idle = {
        entry_id
        for entry_id in search.removed.keys() - search.derived - search.possible_ancestors
        if search.skipped_at(entry_id).isdisjoint(others)
        and not any(state.alone(entry_id) >= weak for state in others.values())
    }
    for entry_id in search.removed.keys() - search.derived - idle:  # descent alone is no evidence
        for alike in search.resembles.get(entry_id, ()):
            idle.difference_update(search.memory.copies(alike))
    return idle


def _still_harmful(search: SearchState) -> dict[str, EventState]:
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
