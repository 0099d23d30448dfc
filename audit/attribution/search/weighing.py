"""Steps 3 to 5 and 7 of the search: what events say of each memory, which join S by that, and which are excluded.

An event that attributes too much of the store has its evidence discarded: it is asked at later points, and where it has
none it is excluded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from memory_audit.attribution.search import bounds, questions
from memory_audit.attribution.search.combinations import is_wanted
from memory_audit.attribution.search.points.steps import retire_points
from memory_audit.attribution.search.settings import MOST_POINTS, WEAK_NATS
from memory_audit.attribution.search.state import Transition
from memory_audit.counted import counted
from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.state import SearchPhase, SearchState

__all__ = [
    "discard_evidence", "exclude_event", "read_closure", "read_necessity", "read_neighbours", "read_sufficiency",
    "unscreen",
]  # fmt: skip

DOUBTED = "what the topic brings by itself, and what memories did in the harmful run, is not yet known"
CONTROLS_DECIDE = "what is attributed depends on control memories not yet asked"
LATER_POINTS = "what an event attributes is too much of the store: it is asked at later points"


def read_sufficiency(search: SearchState) -> Transition:
    """Weigh what memories of the first contexts do alone, until nothing more is to be asked of them."""
    search, missing = _weighable(search)
    if missing:
        return Transition(next="sufficiency", state=search, why=missing)
    joined = _attribute(search)
    search = questions.raise_quotas(joined.state)
    if joined.later_points:
        return Transition(next="divergence", state=search, why=LATER_POINTS)
    if loose := bounds.undecided(search):
        return Transition(next="sufficiency", state=bounds.wanting_controls(search, loose), why=CONTROLS_DECIDE)
    if _without_attribution(search):
        alone = questions.alone_round(search)
        search = alone.noted
        if not alone.is_answered:
            return Transition(next="sufficiency", state=search, why="no memory is attributed yet: others are measured")
    search, hidden = unscreen(search, _without_attribution(search))
    if hidden:
        return Transition(next="sufficiency", state=search, why="groups attribute nothing: their members are measured")
    if is_wanted(search):
        return Transition(next="combinations", state=search, why="no memory does it alone: sets are looked for")
    search, later = retire_points(search, _without_attribution(search), MOST_POINTS // 2)
    if later:
        return Transition(next="divergence", state=search, why="the points attribute nothing: later ones are taken")
    return Transition(next="necessity", state=search, why=_said(joined))


def read_necessity(search: SearchState) -> Transition:
    """Take in what is lost without each memory."""
    why = "what is lost without each memory is known"
    return Transition(next="closure", state=_read_influences(search).reopened(), why=why)


def read_closure(search: SearchState) -> Transition:
    """Weigh what moved up into the places of S, until nothing joins it."""
    search, missing = _weighable(search)
    if missing:
        return Transition(next="closure", state=search, why=missing)
    joined = _attribute(search)
    search = joined.state
    if joined.changed:
        search = replace(search, closure_rounds=search.closure_rounds + 1).reopened()
        search = replace(search, neighbours=search.neighbours.after_round(added=questions.is_flooded(search)))
    search = questions.raise_quotas(search)
    if joined.later_points:
        return Transition(next="divergence", state=search, why=LATER_POINTS)
    if loose := bounds.undecided(search):
        return Transition(next="closure", state=bounds.wanting_controls(search, loose), why=CONTROLS_DECIDE)
    if joined.changed:
        return Transition(next="closure", state=search, why=f"{_said(joined)}: what moves up is measured")
    alone = questions.alone_round(search)
    search = alone.noted
    if not alone.is_answered:
        return Transition(next="closure", state=search, why="more memories are to be measured")
    if loose := bounds.loose_in_large_shares(search):
        return Transition(next="closure", state=bounds.wanting_controls(search, loose), why=CONTROLS_DECIDE)
    search, diffuse, later = _exclude_diffuse(search)
    if diffuse:
        next_phase: SearchPhase = "divergence" if later else "closure"
        return Transition(next=next_phase, state=search, why=LATER_POINTS if later else "a diffuse event is excluded")
    return Transition(next="verify", state=_blame_controls(search), why="nothing more joins the set")


def read_neighbours(search: SearchState) -> Transition:
    """Weigh the memories that resemble attributed ones."""
    search = _read_influences(search)
    if questions.doubts(search):
        return Transition(next="closure", state=search, why=DOUBTED)
    joined = _attribute(search)
    search = joined.state
    search = replace(search, neighbours=search.neighbours.after_round(added=joined.changed))
    loose = bounds.undecided(search)
    search = bounds.wanting_controls(search, loose)
    if loose or joined.changed:
        search = search.reopened()
    search = replace(search, neighbours=replace(search.neighbours, left=questions.unasked_neighbours(search)))
    if joined.later_points:
        return Transition(next="divergence", state=search, why=LATER_POINTS)
    if loose or joined.changed:
        return Transition(next="closure", state=search, why=_said(joined) if joined.changed else CONTROLS_DECIDE)
    return Transition(next="restore", state=search, why="no memory like an attributed one joins the set")


def _weighable(search: SearchState) -> tuple[SearchState, str]:
    """Take in what memories do alone; beside it what is to be asked before it is weighed, empty where nothing is."""
    controls = search.given.controls
    search = search.with_events([controls.read_divergences(state) for state in search.evidence_events()])
    alone = questions.alone_round(_read_groups(search))
    search = alone.noted
    if not alone.is_answered:
        return search, "memories are measured alone, or in groups"
    search = _read_influences(search)
    if loose := bounds.loose_before_most(search):
        return bounds.wanting_controls(search, loose), CONTROLS_DECIDE
    return search, DOUBTED if questions.doubts(search) else ""


def _read_groups(search: SearchState) -> SearchState:
    """Screen in the members of groups that raise the odds, or may, and screen out those of others.

    A group is screened out once: where control memories are left to ask, the baseline's lower bound counts.
    """
    seen = search.given.seen
    told: list[EventState] = []
    for state in search.open_events():
        found, cleared = state.screening.found, state.screening.cleared
        for group in state.screening.groups:
            if not seen.answers(seen.shown(state, group)):
                continue
            gain = seen.gain(state, group)
            if gain is None or gain + bounds.event_slack_nats(search, state) >= WEAK_NATS:
                found = found.union(group)
            else:
                cleared = cleared.union(group)
        told.append(replace(state, screening=replace(state.screening, found=found, cleared=cleared)))
    return search.with_events(told)


def _read_influences(search: SearchState) -> SearchState:
    """Take in what was measured of each memory, at every event that is evidence."""
    seen = search.given.seen
    told: list[EventState] = []
    for state in search.evidence_events():
        asked = search.given.memory.in_log_order(seen.asked_about(state.event_id))
        known = {name: influence for name in asked if (influence := seen.influence(state, name)) is not None}
        told.append(replace(state, influences={**state.influences, **known}))
    return search.with_events(told)


def _without_attribution(search: SearchState) -> list[EventState]:
    """Return the open events whose context, with the whole store, holds no memory of S."""
    return [
        state for state in search.open_events() if search.removal.ids.isdisjoint(search.context(state, frozenset()))
    ]


def unscreen(search: SearchState, states: Iterable[EventState]) -> tuple[SearchState, bool]:
    """Measure alone what was screened out: another member of its group may have hidden it. True if there is any."""
    screened = [
        replace(state, screening=replace(state.screening, cleared=frozenset(), enabled=False))
        for state in states
        if state.screening.cleared
    ]
    return search.with_events(screened), bool(screened)


class _Joined(NamedTuple):
    """What the evidence made of S."""

    state: SearchState
    added: int
    """Memories that joined S."""

    changed: bool
    """Events are to be judged anew."""

    later_points: bool
    """Instead of being excluded, an event is asked at later points."""


def _attribute(search: SearchState) -> _Joined:
    """Move every memory whose evidence reaches the threshold into S.

    Where S comes to be most of the store, the event that attributes most is excluded, and S is built anew.
    """
    before, awaited = search.removal.ids, questions.awaited_memories(search)
    excluded = later_points = False
    search = _attributed(search, awaited)
    while (diffuse := _most_diffuse(search)) is not None:
        search, later = exclude_event(search, *diffuse)
        search = _attributed(search, awaited)
        excluded, later_points = True, later_points or later
    changed = excluded or before != search.removal.ids
    return _Joined(search, len(search.removal.ids - before), changed, later_points)


def _attributed(search: SearchState, awaited: set[str]) -> SearchState:
    found = search.given.rule.attributed(search.events.values(), search.removal.ids, awaited)
    return search.with_attributed({**search.removal.attributed, **found}) if found else search


def _most_diffuse(search: SearchState) -> tuple[EventState, str] | None:
    """Where S is most of the store, return the event that attributes most, and what is said of it.

    Where none attributes anything by itself, weak evidence added up, and it is the event that has most of it. What most
    memories bring may be wording: later points are asked for first.
    """
    rule = search.given.rule
    if not rule.is_most_of_store(len(search.removal.attributed)):
        return None
    attributed, event_id = max((len(rule.attributed_by(state)), state.event_id) for state in search.events.values())
    if attributed:
        return search.events[event_id], _diffuse_effect(search, attributed)
    credited, event_id = max(
        (sum(state.credit_of(entry_id) >= WEAK_NATS for entry_id in state.influences), state.event_id)
        for state in search.events.values()
    )
    return (search.events[event_id], _diffuse_effect(search, credited, "add to it, none by much")) if credited else None


def _exclude_diffuse(search: SearchState) -> tuple[SearchState, bool, bool]:
    """Exclude events that attribute a large share of the store without a gap, or late.

    Returns:
        What is known then, whether there are any, and whether one is asked at later points instead.
    """
    rule = search.given.rule
    diffuse, later_points = [state for state in search.open_events() if rule.is_diffuse(state)], False
    for state in diffuse:
        how = "and only late in the answer" if rule.is_late(state) else "and none stands out"
        effect = _diffuse_effect(search, len(rule.attributed_by(state)))
        search, later = exclude_event(search, state, f"{effect}, {how}")
        later_points = later_points or later
    return search, bool(diffuse), later_points


def _diffuse_effect(search: SearchState, count: int, how: str = "bring it, one at a time") -> str:
    return f"the effect is diffuse: {count} of {len(search.given.memory.entries)} memories {how}"


def exclude_event(search: SearchState, state: EventState, reason: str) -> tuple[SearchState, bool]:
    """Ask for an event's later points, and where there are none exclude it: it is evidence on no memory.

    Returns:
        What is known then, and whether later points are asked for.
    """
    search, later = retire_points(search, [state])
    search = discard_evidence(search, [state.event_id])
    if not later:
        excluded = search.events[state.event_id].settle("not cleared", reason, excluded=True)
        search = search.with_events([excluded])
    return search, bool(later)


def discard_evidence(search: SearchState, event_ids: Iterable[str]) -> SearchState:
    """Discard what was measured of memories at these events' points, and judge every event anew."""
    search = search.with_events([search.events[event_id].without_evidence() for event_id in event_ids])
    return search.with_attributed({}).reopened()


def _blame_controls(search: SearchState) -> SearchState:
    """Reopen an event whose harm came with whichever memory was shown, where one of these is in S by now."""
    controls, gone = search.given.controls, search.removal.ids
    return search.with_events(
        state.reopened()
        for state in search.events.values()
        if state.status == "memory is not the cause"
        and not (state.replays.without_memory is not None and (state.replays.without_memory.harm or 0.0) >= HARMFUL)
        and not gone.isdisjoint(controls.all_of(state))
    )


def _said(joined: _Joined) -> str:
    return f"{counted(joined.added, 'memory')} joined the set, which holds {len(joined.state.removal.ids)}"
