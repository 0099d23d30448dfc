"""Steps 3 to 5 and 7 of the search: what events say of each memory, who joins S by that, and which are not heard.

An event that speaks against too much of the store renounces what it said: it is asked at later points, and where it has
none it is heard no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import leave_out
from memory_audit.attribution.search.bounds import lowest
from memory_audit.attribution.search.plan import unheard
from memory_audit.attribution.search.points import deepen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.attribution.search.attributed import Conviction
    from memory_audit.attribution.search.controls import Placebos
    from memory_audit.attribution.search.state import EventState, SearchState

__all__ = [
    "acquit_crowds",
    "convict",
    "doubt_screening",
    "hear_no_more",
    "read_groups",
    "read_influences",
    "renounce",
    "without_culprit",
]


def read_groups(search: SearchState, placebos: Placebos) -> None:
    """Make suspects of the members of groups that raise the odds, or may, and acquit those of others.

    A group is acquitted once: where placebos are left that would lower the baseline, by what it would be at the lowest.
    """
    for event_id, state in search.live():
        for group in state.groups:
            if any(ablation not in search.measured for ablation in search.measured.shown(event_id, state, group)):
                continue
            gain = search.measured.gain(event_id, state, group)
            if gain is not None:
                gain += lowest(search, placebos, event_id, state)
            (state.suspects if gain is None or gain >= search.settings.weak_nats else state.acquitted).update(group)


def read_influences(search: SearchState) -> None:
    """Take in what was measured of each memory, at every event that is heard."""
    for event_id, state in search.heard():
        state.odds_full = [
            outcome.log_odds_nats if outcome is not None else None
            for point in range(len(state.points))
            for outcome in (search.measured.get(leave_out(event_id, "full", "odds", frozenset(), point)),)
        ]
        for entry_id in search.memory.in_log_order(search.measured.asked_about(event_id)):
            influence = search.measured.influence(event_id, state, entry_id)
            if influence is not None:
                state.influences[entry_id] = influence


def without_culprit(search: SearchState) -> list[EventState]:
    """Return the open events in whose context nobody was convicted."""
    return [
        state
        for _, state in search.live()
        if not any(entry_id in search.removed for entry_id in search.context(state, frozenset()))
    ]


def doubt_screening(states: Iterable[EventState]) -> bool:
    """Measure alone whom a group acquitted: another member may have spoken against it. True if there is anybody."""
    doubted = [state for state in states if state.acquitted]
    for state in doubted:
        state.acquitted, state.screening = set(), False
    return bool(doubted)


def convict(search: SearchState, conviction: Conviction) -> bool:
    """Move every memory whose evidence reaches the threshold into S; True if events are to be judged anew.

    Where S comes to be most of the store, the event that convicts most is heard no more, and S is built anew.
    """
    before, reopened, waiting = set(search.removed), False, unheard(search)
    search.removed |= conviction.culprits(search.states, search.removed, waiting)
    while _acquit_at_large(search, conviction):
        search.removed |= conviction.culprits(search.states, search.removed, waiting)
        reopened = True
    return reopened or before != search.removed.keys()


def _acquit_at_large(search: SearchState, conviction: Conviction) -> bool:
    """Where S is most of the store, hear the event that convicts most no more; True if that was so.

    Where none convicts anybody by itself, weak evidence added up, and it is the event that has most of it. What most
    memories bring may be style: later points are asked for first.
    """
    if not conviction.is_most(len(search.removed.keys() - search.taken)):
        return False
    convicted, event_id = max((len(conviction.by(state)), event_id) for event_id, state in search.states.items())
    if convicted:
        hear_no_more(search, search.states[event_id], _at_large(search, convicted))
        return True
    weak = search.settings.weak_nats
    credited, event_id = max(
        (sum(state.credit_of(entry_id) >= weak for entry_id in state.influences), event_id)
        for event_id, state in search.states.items()
    )
    if credited:
        hear_no_more(search, search.states[event_id], _at_large(search, credited, "add to it, none by much"))
    return credited > 0


def acquit_crowds(search: SearchState, conviction: Conviction) -> bool:
    """Hear events no more that convict a crowd of which nobody stands out in time; True if there are any."""
    swayed = [state for _, state in search.live() if conviction.is_crowd(state)]
    for state in swayed:
        how = "and only late in the answer" if conviction.is_late(state) else "and none stands out"
        hear_no_more(search, state, f"{_at_large(search, len(conviction.by(state)))}, {how}")
    return bool(swayed)


def _at_large(search: SearchState, count: int, how: str = "bring it, one at a time") -> str:
    return f"harm comes with memory at large: {count} of {len(search.memory.entries)} memories {how}"


def hear_no_more(search: SearchState, state: EventState, reason: str) -> None:
    """Ask for an event's later points, and where there are none give it up: it speaks against nobody."""
    deeper = deepen(search, state)
    search.deeper = search.deeper or deeper
    renounce(search, [state])
    if not deeper:
        state.status, state.at_large, state.reason = "not cleared", True, reason


def renounce(search: SearchState, states: Iterable[EventState]) -> None:
    """Forget what was said of memories at these events' points, and judge every event anew."""
    for state in states:
        state.influences, state.suspects, state.acquitted, state.groups = {}, set(), set(), []
        state.screening = True
    search.removed = {entry_id: why for entry_id, why in search.removed.items() if entry_id in search.taken}
    search.reopen()
