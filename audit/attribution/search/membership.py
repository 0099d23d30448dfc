"""Steps 3 to 5 and 7 of the search: what events say of each memory, which join S by that, and which are excluded.

An event that attributes too much of the store has its evidence discarded: it is asked at later points, and where it has
none it is excluded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import leave_out
from memory_audit.attribution.search.bounds import event_slack_nats
from memory_audit.attribution.search.plan import awaited_memories
from memory_audit.attribution.search.points import retire_points

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.attribution.search.attributed import AttributionRule
    from memory_audit.attribution.search.controls import ControlMemories
    from memory_audit.attribution.search.state import EventState, SearchState

__all__ = [
    "attribute", "discard_evidence", "events_without_attribution", "exclude_diffuse_events", "exclude_event",
    "read_groups", "read_influences", "unscreen",
]  # fmt: skip


def read_groups(search: SearchState, controls: ControlMemories) -> None:
    """Screen in the members of groups that raise the odds, or may, and screen out those of others.

    A group is screened out once: where control memories are left to ask, the baseline's lower bound counts.
    """
    for event_id, state in search.open_events():
        for group in state.groups:
            if any(ablation not in search.measured for ablation in search.measured.shown(event_id, state, group)):
                continue
            gain = search.measured.gain(event_id, state, group)
            if gain is not None:
                gain += event_slack_nats(search, controls, event_id, state)
            found = state.screened_in if gain is None or gain >= search.settings.weak_nats else state.screened_out
            found.update(group)


def read_influences(search: SearchState) -> None:
    """Take in what was measured of each memory, at every event that is evidence."""
    for event_id, state in search.evidence_events():
        state.odds_full = [
            outcome.log_odds_nats if outcome is not None else None
            for point in range(len(state.points))
            for outcome in (search.measured.get(leave_out(event_id, "full", "odds", frozenset(), point)),)
        ]
        for entry_id in search.memory.in_log_order(search.measured.asked_about(event_id)):
            influence = search.measured.influence(event_id, state, entry_id)
            if influence is not None:
                state.influences[entry_id] = influence


def events_without_attribution(search: SearchState) -> list[EventState]:
    """Return the open events whose context, with the whole store, holds no memory of S."""
    return [
        state
        for _, state in search.open_events()
        if not any(entry_id in search.removed for entry_id in search.context(state, frozenset()))
    ]


def unscreen(states: Iterable[EventState]) -> bool:
    """Measure alone what was screened out: another member of its group may have hidden it. True if there is any."""
    screened = [state for state in states if state.screened_out]
    for state in screened:
        state.screened_out, state.screening = set(), False
    return bool(screened)


def attribute(search: SearchState, rule: AttributionRule) -> bool:
    """Move every memory whose evidence reaches the threshold into S; True if events are to be judged anew.

    Where S comes to be most of the store, the event that attributes most is excluded, and S is built anew.
    """
    before, reopened, awaited = set(search.removed), False, awaited_memories(search)
    search.removed |= rule.attributed(search.states, search.removed, awaited)
    while _exclude_most_diffuse(search, rule):
        search.removed |= rule.attributed(search.states, search.removed, awaited)
        reopened = True
    return reopened or before != search.removed.keys()


def _exclude_most_diffuse(search: SearchState, rule: AttributionRule) -> bool:
    """Where S is most of the store, exclude the event that attributes most; True if that was so.

    Where none attributes anything by itself, weak evidence added up, and it is the event that has most of it. What most
    memories bring may be wording: later points are asked for first.
    """
    if not rule.is_most_of_store(len(search.removed.keys() - search.derived)):
        return False
    attributed, event_id = max((len(rule.attributed_by(state)), event_id) for event_id, state in search.states.items())
    if attributed:
        exclude_event(search, search.states[event_id], _diffuse_effect(search, attributed))
        return True
    weak = search.settings.weak_nats
    credited, event_id = max(
        (sum(state.credit_of(entry_id) >= weak for entry_id in state.influences), event_id)
        for event_id, state in search.states.items()
    )
    if credited:
        exclude_event(search, search.states[event_id], _diffuse_effect(search, credited, "add to it, none by much"))
    return credited > 0


def exclude_diffuse_events(search: SearchState, rule: AttributionRule) -> bool:
    """Exclude events that attribute a large share of the store without a gap, or late; True if there are any."""
    diffuse = [state for _, state in search.open_events() if rule.is_diffuse(state)]
    for state in diffuse:
        how = "and only late in the answer" if rule.is_late(state) else "and none stands out"
        exclude_event(search, state, f"{_diffuse_effect(search, len(rule.attributed_by(state)))}, {how}")
    return bool(diffuse)


def _diffuse_effect(search: SearchState, count: int, how: str = "bring it, one at a time") -> str:
    return f"the effect is diffuse: {count} of {len(search.memory.entries)} memories {how}"


def exclude_event(search: SearchState, state: EventState, reason: str) -> None:
    """Ask for an event's later points, and where there are none exclude it: it is evidence on no memory."""
    later = retire_points(search, state)
    search.later_points_wanted = search.later_points_wanted or later
    discard_evidence(search, [state])
    if not later:
        state.status, state.excluded, state.reason = "not cleared", True, reason


def discard_evidence(search: SearchState, states: Iterable[EventState]) -> None:
    """Discard what was measured of memories at these events' points, and judge every event anew."""
    for state in states:
        state.influences, state.screened_in, state.screened_out, state.groups = {}, set(), set(), []
        state.screening = True
    search.removed = {entry_id: why for entry_id, why in search.removed.items() if entry_id in search.derived}
    search.reopen()
