"""What the set search asks next: the ablations of each phase, read off what is known so far.

Nothing is judged here. What has an answer already may be asked for again: `SetSearch.plan` leaves it out. A round that
shows memories alone notes which it shows in groups and which it skips, one that asks neighbours which it asked.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import Ablation, AblationKind, keep_only, leave_out
from memory_audit.attribution.search.format_points import Place, place_of
from memory_audit.attribution.search.restoration import restore_round

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.attribution.search.controls import ControlMemories
    from memory_audit.attribution.search.state import EventState, SearchState

__all__ = [
    "awaited_memories", "baseline_round", "continued", "events_all_format", "next_round", "pending", "raise_quotas",
    "span_round", "unasked_neighbours",
]  # fmt: skip


def next_round(search: SearchState, controls: ControlMemories) -> list[Ablation]:
    """Return what the phase asks, answered or not; empty where it asks nothing."""
    match search.phase:
        case "reproduction":
            return _reproduction_round(search)
        case "harm span":
            return span_round(search, controls)
        case "divergence":
            return _continuation_round(search)
        case "baseline":
            return baseline_round(search, controls)
        case "reference":
            return _reference_round(search, controls)
        case "sufficiency" | "closure":
            wanted = [item for item in _wanted_controls(search, controls) if item not in search.measured]
            return wanted or _alone_round(search) + (_neighbour_round(search) if search.is_flooded else [])
        case "necessity":
            return _necessity_round(search)
        case "verify":
            return _verify_round(search)
        case "neighbours":
            return _neighbour_round(search)
        case "restore":
            return restore_round(search)
        case "done":
            return []


def pending(search: SearchState) -> bool:
    """Tell whether answers call for more of the same round: a next point, or the members of a group."""
    return any(ablation not in search.measured for ablation in _alone_round(search))


def events_all_format(search: SearchState, controls: ControlMemories) -> list[tuple[str, EventState]]:
    """Return the open events whose points are all format effects, and that have no clean replay with a memory yet."""
    return [(event_id, state) for event_id, state in search.open_events() if controls.is_all_format(state)]


def continued(event_id: str, state: EventState) -> Ablation:
    """Ask how the clean replay goes on past the last point: with no memory, or with the one that it was taken with."""
    kind: AblationKind = "keep_one" if state.reference else "no_memory"
    return keep_only(event_id, kind, "continuation", state.reference, len(state.points) - 1)


def _reproduction_round(search: SearchState) -> list[Ablation]:
    return [
        ablation
        for event_id in search.states
        for ablation in (
            leave_out(event_id, "full", "text", frozenset()),
            keep_only(event_id, "no_memory", "text", ()),
        )
    ]


def span_round(search: SearchState, controls: ControlMemories) -> list[Ablation]:
    """Ask how likely the harm span is without a cause."""
    return [ablation for event_id, state in search.open_events() for ablation in controls.for_span(event_id, state)]


def _continuation_round(search: SearchState) -> list[Ablation]:
    return [
        continued(event_id, state)
        for event_id, state in search.open_events()
        if 0 < state.divergences < state.wanted_divergences
    ]


def baseline_round(search: SearchState, controls: ControlMemories) -> list[Ablation]:
    """Ask for the odds at the points without a cause, and whether what looks like a format effect is one.

    Of events that diverge alike, as many begin as may settle it for all (`shared_format`).
    """
    asked: list[Ablation] = []
    begun: dict[Place, list[list[Ablation]]] = {}
    for event_id, state in search.open_events():
        for measure, point in search.measured.measures(state):
            if measure == "sample":
                asked.append(keep_only(event_id, "no_memory", "sample", ()))
            elif measure == "odds" and point not in state.baseline:
                place = place_of(state.points[point])
                asking = begun.setdefault(place, [])
                enough = len(asking) >= search.settings.control_memories
                if enough and any(item not in search.measured for items in asking for item in items):
                    continue
                if len(search.context(state)) >= search.settings.screen_from:
                    state.controls_wanted[point] = search.settings.control_memories  # a group is screened once
                asked.extend(items := controls.at_divergence(event_id, state, point))
                if not enough:
                    asking.append(items)
    return asked + [
        item
        for event_id, state in events_all_format(search, controls)
        for item in controls.format_checks(event_id, state)
    ]


def _reference_round(search: SearchState, controls: ControlMemories) -> list[Ablation]:
    return [
        item for event_id, state in events_all_format(search, controls) for item in controls.replays(event_id, state)
    ]


def _alone_round(search: SearchState) -> list[Ablation]:
    """Show memories alone, within their quotas; then, when that has answers, those without effect so far together."""
    asked: list[Ablation] = []
    grouped: list[tuple[str, EventState, list[str]]] = []
    quotas, inert = _quotas_left(search), _inert(search)
    for event_id, state in search.open_events():
        context = [entry_id for entry_id in search.context(state) if entry_id not in state.screened_out]
        fresh = [
            entry_id
            for entry_id in context
            if entry_id not in state.screened_in and not _is_begun(search, entry_id, event_id)
        ]
        together = [entry_id for entry_id in fresh if entry_id in inert] if state.screening and state.points else []
        if len(together) > 1:
            grouped.append((event_id, state, together))
            context = [entry_id for entry_id in context if entry_id not in together]
        context = [entry_id for entry_id in context if _is_within_quota(search, entry_id, event_id, quotas)]
        screened = [entry_id for entry_id in context if entry_id in fresh]
        state.groups = []
        if state.screening and state.points and len(screened) >= search.settings.screen_from:
            state.groups = _grouped(screened)
            context = [entry_id for entry_id in context if entry_id not in screened]
        for kept in [*state.groups, *((entry_id,) for entry_id in context)]:
            asked.extend(search.measured.shown(event_id, state, kept))
    if all(item in search.measured for item in asked):
        for event_id, state, together in grouped:
            groups = _grouped(together) if len(together) >= search.settings.screen_from else [tuple(together)]
            state.groups += groups
            for kept in groups:
                asked.extend(search.measured.shown(event_id, state, kept))
    return asked


def _inert(search: SearchState) -> set[str]:
    """Return the memories that were measured, with nothing worth adding up at any event."""
    told = [
        (entry_id, influence.sufficiency_nats)
        for state in search.states.values()
        for entry_id, influence in state.influences.items()
        if influence.sufficiency_nats is not None
    ]
    weak = search.settings.weak_nats
    return {entry_id for entry_id, _ in told} - {entry_id for entry_id, nats in told if nats >= weak}


def _wanted_controls(search: SearchState, controls: ControlMemories) -> list[Ablation]:
    """Ask for the control memories that an attribution depends on, also at events that are cleared by now."""
    return [
        item
        for event_id, state in search.evidence_events()
        for measure, point in search.measured.measures(state)
        if measure == "odds" and not state.measures_span and state.controls_wanted.get(point)
        for item in controls.at_divergence(event_id, state, point)
    ]


def raise_quotas(search: SearchState) -> None:
    """Let memories be measured at twice as many events as they were, now that the evidence of these is weighed.

    Events that are alike retrieve the same memories, and the same ones move up. One event attributes for all; only
    where it does not are others asked, twice as many each time, so that a memory in many contexts takes few rounds. The
    best match of each event is measured there at once, so that every event says something.
    """
    told = Counter(entry_id for state in search.states.values() for entry_id in state.influences)
    search.event_quotas = {entry_id: 2 * events for entry_id, events in told.items()}


def _quotas_left(search: SearchState) -> Counter[str]:
    """Return at how many more events each memory may be measured now."""
    shown = [(entry_id, event_id) for event_id, state in search.open_events() for entry_id in search.context(state)]
    begun = Counter(entry_id for entry_id, event_id in shown if _is_begun(search, entry_id, event_id))
    return Counter({entry_id: search.event_quotas.get(entry_id, 1) - begun[entry_id] for entry_id, _ in shown})


def _is_within_quota(search: SearchState, entry_id: str, event_id: str, quotas: Counter[str]) -> bool:
    """Tell whether to measure a memory at an event now, and note where it is skipped."""
    if _is_begun(search, entry_id, event_id):
        return True
    quotas[entry_id] -= 1
    if quotas[entry_id] >= 0 or entry_id in search.context(search.states[event_id], frozenset())[:1]:
        return True
    search.skipped.setdefault(entry_id, set()).add(event_id)
    return False


def _is_begun(search: SearchState, entry_id: str, event_id: str) -> bool:
    """Tell whether a memory was shown alone at an event, at its first point at least."""
    state = search.states[event_id]
    return any(item in search.measured for item in search.measured.shown(event_id, state, (entry_id,))[:1])


def awaited_memories(search: SearchState) -> set[str]:
    """Return the memories in the contexts of open events that some of these have not measured yet."""
    return {
        entry_id
        for event_id, state in search.open_events()
        if search.measured.measures(state)
        for entry_id in search.context(state)
        if entry_id not in state.screened_out and not _is_begun(search, entry_id, event_id)
    }


def _grouped(entry_ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Cut a context into groups of about its square root, neighbours in the ranking together."""
    size = math.isqrt(len(entry_ids) - 1) + 1
    return [tuple(entry_ids[start : start + size]) for start in range(0, len(entry_ids), size)]


def _necessity_round(search: SearchState) -> list[Ablation]:
    asked: list[Ablation] = []
    for event_id, state in search.open_events():
        context = search.context(state, frozenset())
        if search.settings.attribution == "set" and any(entry_id in search.removed for entry_id in context):
            continue
        for measure, point in search.measured.measures(state):
            if measure != "text":
                asked.append(leave_out(event_id, "full", measure, frozenset(), point))
            asked.extend(leave_out(event_id, "leave_one_out", measure, {entry_id}, point) for entry_id in context)
    return asked


def _verify_round(search: SearchState) -> list[Ablation]:
    removed = frozenset(search.removed)
    return [
        leave_out(event_id, "removal", "text", removed)
        for event_id, state in search.open_events()
        if search.context(state) not in state.replayed
    ]


def _neighbour_round(search: SearchState) -> list[Ablation]:
    asked: list[Ablation] = []
    for entry_id, event_id in itertools.islice(_neighbours(search).items(), search.neighbour_room):
        search.neighbours_asked.add(entry_id)
        asked.extend(
            keep_only(event_id, "keep_one", measure, (entry_id,), point)
            for measure, point in search.measured.measures(search.states[event_id])
        )
    return asked


def unasked_neighbours(search: SearchState) -> int:
    """Return how many memories that resemble attributed ones no round had room for."""
    return len(_neighbours(search))


def _neighbours(search: SearchState) -> dict[str, str]:
    """Return the memories yet to be asked about that resemble an attributed one, each with the event to ask it at."""
    found: dict[str, str] = {}
    for removed in sorted(search.removed):
        event_id = _best_event(search, removed)
        if event_id is None:
            continue
        for entry_id in search.resembles.get(removed, ()):
            known = entry_id in search.removed or entry_id in search.states[event_id].influences
            if not known and entry_id not in search.neighbours_asked and entry_id in search.memory:
                found.setdefault(entry_id, event_id)
    return found


def _best_event(search: SearchState, entry_id: str) -> str | None:
    """Return the event on which this memory weighs most: the most sensitive instrument for its like."""
    weighed = [
        (state.alone(entry_id), event_id) for event_id, state in search.states.items() if entry_id in state.influences
    ]
    return max(weighed)[1] if weighed else None
