"""What the set search asks next: the ablations of each phase, read off what is known so far.

Nothing is judged here, and nothing changed. What has an answer already may be asked for again: `SetSearch.plan` leaves
it out. A round says what is to be noted once it is asked: which memories it shows in groups, skips, or asks about.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import Ablation, AblationKind, keep_only, leave_out, topic_alone
from memory_audit.attribution.search.points.format_points import Place, place_of
from memory_audit.attribution.search.settings import CONTROL_MEMORIES, WEAK_NATS
from memory_audit.attribution.search.state import Round

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.state import SearchState

__all__ = [
    "alone_round", "awaited_memories", "baseline_round", "continuation_round", "continued", "doubts",
    "events_all_format", "evidence_round", "is_flooded", "necessity_round", "neighbour_room", "neighbour_round",
    "raise_quotas", "reference_round", "reproduction_round", "span_round", "unasked_neighbours", "verify_round",
]  # fmt: skip

PATIENCE = 8
"""Rounds of step 5 that add to S after which step 7 goes on beside it. Where poison comes by the hundred, only as many
move up in a round as one event retrieves."""

NEIGHBOUR_CANDIDATES = 32
"""Most memories measured in step 7 in its first round, and twice as many in each one after a round that added to S. A
round that adds none is the last: how many it left is told with what was not examined."""


def events_all_format(search: SearchState) -> list[EventState]:
    """Return the open events whose points are all format effects, and that have no clean replay with a memory yet."""
    return [state for state in search.open_events() if search.given.controls.is_all_format(state)]


def reproduction_round(search: SearchState) -> Round:
    """Replay each event with the whole store, and with no memory."""
    asked = [
        ablation
        for event_id in search.events
        for ablation in (
            leave_out(event_id, "full", "text", frozenset()),
            keep_only(event_id, "no_memory", "text", ()),
        )
    ]
    return Round(asked=asked, noted=search)


def span_round(search: SearchState) -> Round:
    """Ask how likely the harm span is without a cause."""
    asked = [ablation for state in search.open_events() for ablation in search.given.controls.for_span(state)]
    return Round(asked=asked, noted=search)


def continued(state: EventState) -> Ablation:
    """Ask how the clean replay goes on past the last point: with no memory, or with the one that it was taken with."""
    kind: AblationKind = "keep_one" if state.where.reference else "no_memory"
    return keep_only(state.event_id, kind, "continuation", state.where.reference, len(state.points) - 1)


def continuation_round(search: SearchState) -> Round:
    """Force a clean replay through the last point of each event that wants another one."""
    return Round(asked=[continued(state) for state in search.open_events() if state.where.wants_more], noted=search)


def baseline_round(search: SearchState) -> Round:
    """Ask for the odds at the points without a cause, and whether what looks like a format effect is one.

    Of events that diverge alike, as many begin as may settle it for all (`shared_format`).
    """
    seen, controls = search.given.seen, search.given.controls
    asked: list[Ablation] = []
    begun: defaultdict[Place, list[list[Ablation]]] = defaultdict(list)
    noted: list[EventState] = []
    for state in search.open_events():
        large = len(search.context(state)) >= search.given.settings.screen_from
        for measure, point in seen.measures(state):
            if measure == "sample":
                asked.append(keep_only(state.event_id, "no_memory", "sample", ()))
            elif measure == "odds" and point not in state.controls.baseline:
                asking = begun[place_of(state.points[point])]
                enough = len(asking) >= CONTROL_MEMORIES
                if enough and not all(seen.answers(items) for items in asking):
                    continue
                if large:  # a group is screened once
                    wanted = {**state.controls.wanted, point: CONTROL_MEMORIES}
                    state = replace(state, controls=replace(state.controls, wanted=wanted))  # noqa: PLW2901
                asked.extend(items := controls.at_divergence(state, point))
                if not enough:
                    asking.append(items)
        noted.append(state)
    checks = [item for state in events_all_format(search) for item in controls.format_checks(state)]
    return Round(asked=asked + checks, noted=search.with_events(noted))


def reference_round(search: SearchState) -> Round:
    """Replay events whose points are all format effects with one memory at a time."""
    asked = [item for state in events_all_format(search) for item in search.given.controls.replays(state)]
    return Round(asked=asked, noted=search)


def evidence_round(search: SearchState) -> Round:
    """Ask for the control memories that an attribution depends on; then show memories alone.

    Where step 5 goes on for long, those that resemble attributed ones are shown beside.
    """
    wanted = [item for item in _wanted_controls(search) if item not in search.given.seen]
    if wanted:
        return Round(asked=wanted, noted=search)
    alone = alone_round(search)
    asked = [*alone.asked, *doubts(search)]
    if not is_flooded(search):
        return replace(alone, asked=asked)
    beside = neighbour_round(alone.noted)
    return Round(asked=[*asked, *beside.asked], noted=beside.noted)


def doubts(search: SearchState) -> list[Ablation]:
    """Ask what may speak for memories that are about to be attributed, as far as it is not known.

    It is what their topic brings by itself, and, unless they are beyond doubt, what those of the harmful run did there.
    """
    seen, rule = search.given.seen, search.given.rule
    about = rule.doubted(search.events.values(), search.removal.ids)
    asked: list[Ablation] = []
    for state in search.evidence_events():
        names = [name for name in about if state.evidence_of(name) >= WEAK_NATS]
        points = [point for measure, point in seen.measures(state) if measure == "odds"] if names else []
        asked.extend(topic_alone(state.event_id, point) for point in points)
        context = () if state.full is None else state.full.context
        for name in names:
            if name in context and not rule.is_beyond_doubt(state, name):
                asked.extend(leave_out(state.event_id, "full", "odds", frozenset(), point) for point in points)
                asked.extend(leave_out(state.event_id, "leave_one_out", "odds", {name}, point) for point in points)
    return [item for item in dict.fromkeys(asked) if item not in seen]


def _wanted_controls(search: SearchState) -> list[Ablation]:
    """Ask for the control memories that an attribution depends on, also at events that are cleared by now."""
    return [
        item
        for state in search.evidence_events()
        for point in search.given.seen.divergences(state)
        if state.controls.wanted.get(point)
        for item in search.given.controls.at_divergence(state, point)
    ]


def alone_round(search: SearchState) -> Round:
    """Show memories alone, within their quotas; then, when that has answers, those without effect so far together."""
    seen, screen_from = search.given.seen, search.given.settings.screen_from
    asked: list[Ablation] = []
    together: dict[str, list[str]] = {}
    groups: dict[str, list[tuple[str, ...]]] = {}
    skipped: defaultdict[str, set[str]] = defaultdict(set)
    quotas, inert = _quotas_left(search), _inert(search)
    for state in search.open_events():
        screens = state.screening.enabled and bool(state.points)
        context = [name for name in search.context(state) if name not in state.screening.cleared]
        fresh = {name for name in context if name not in state.screening.found and not _is_begun(search, name, state)}
        idle = [name for name in context if name in fresh and name in inert] if screens else []
        if len(idle) > 1:
            together[state.event_id] = idle
            context = [name for name in context if name not in idle]
        best = search.context(state, frozenset())[:1]
        within: list[str] = []
        for name in context:
            if _is_begun(search, name, state):
                within.append(name)
                continue
            quotas[name] -= 1
            if quotas[name] >= 0 or name in best:
                within.append(name)
            else:
                skipped[name].add(state.event_id)
        screened = [name for name in within if name in fresh]
        groups[state.event_id] = []
        if screens and len(screened) >= screen_from:
            groups[state.event_id] = _grouped(screened)
            within = [name for name in within if name not in screened]
        for kept in [*groups[state.event_id], *((name,) for name in within)]:
            asked.extend(seen.shown(state, kept))
    if seen.answers(asked):
        for event_id, idle in together.items():
            shown = _grouped(idle) if len(idle) >= screen_from else [tuple(idle)]
            groups[event_id] += shown
            asked.extend(item for kept in shown for item in seen.shown(search.events[event_id], kept))
    return Round(asked=asked, noted=_noted(search, groups, skipped))


def _noted(
    search: SearchState, groups: Mapping[str, Sequence[tuple[str, ...]]], skipped: Mapping[str, AbstractSet[str]]
) -> SearchState:
    """Note which memories an event is shown in groups, and which events skip a memory."""
    shown = [
        replace(state, screening=replace(state.screening, groups=tuple(groups[event_id])))
        for event_id, state in search.events.items()
        if event_id in groups and state.screening.groups != tuple(groups[event_id])
    ]
    more = {name: search.skipped.get(name, frozenset()) | events for name, events in skipped.items()}
    return replace(search.with_events(shown), skipped={**search.skipped, **more})


def _inert(search: SearchState) -> set[str]:
    """Return the memories that were measured, with nothing worth adding up at any event."""
    told = [
        (entry_id, influence.sufficiency_nats)
        for state in search.events.values()
        for entry_id, influence in state.influences.items()
        if influence.sufficiency_nats is not None
    ]
    return {entry_id for entry_id, _ in told} - {entry_id for entry_id, nats in told if nats >= WEAK_NATS}


def raise_quotas(search: SearchState) -> SearchState:
    """Let memories be measured at twice as many events as they were, now that the evidence of these is weighed.

    Events that are alike retrieve the same memories, and the same ones move up. One event attributes for all; only
    where it does not are others asked, twice as many each time, so that a memory in many contexts takes few rounds. The
    best match of each event is measured there at once, so that every event says something.
    """
    told = Counter(entry_id for state in search.events.values() for entry_id in state.influences)
    return replace(search, quotas={entry_id: 2 * events for entry_id, events in told.items()})


def _quotas_left(search: SearchState) -> Counter[str]:
    """Return at how many more events each memory may be measured now."""
    shown = [(entry_id, state) for state in search.open_events() for entry_id in search.context(state)]
    begun = Counter(entry_id for entry_id, state in shown if _is_begun(search, entry_id, state))
    return Counter({entry_id: search.quotas.get(entry_id, 1) - begun[entry_id] for entry_id, _ in shown})


def _is_begun(search: SearchState, entry_id: str, state: EventState) -> bool:
    """Tell whether a memory was shown alone at an event, at its first point at least."""
    return any(item in search.given.seen for item in search.given.seen.shown(state, (entry_id,))[:1])


def awaited_memories(search: SearchState) -> set[str]:
    """Return the memories in the contexts of open events that some of these have not measured yet."""
    return {
        entry_id
        for state in search.open_events()
        if search.given.seen.measures(state)
        for entry_id in search.context(state)
        if entry_id not in state.screening.cleared and not _is_begun(search, entry_id, state)
    }


def _grouped(entry_ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Cut a context into groups of about its square root, neighbours in the ranking together."""
    size = math.isqrt(len(entry_ids) - 1) + 1
    return [tuple(entry_ids[start : start + size]) for start in range(0, len(entry_ids), size)]


def necessity_round(search: SearchState) -> Round:
    """Leave out each memory in turn at events whose context holds no attributed one."""
    asked: list[Ablation] = []
    for state in search.open_events():
        context = search.context(state, frozenset())
        if not search.removal.ids.isdisjoint(context):
            continue
        for measure, point in search.given.seen.measures(state):
            if measure != "text":
                asked.append(leave_out(state.event_id, "full", measure, frozenset(), point))
            asked.extend(leave_out(state.event_id, "leave_one_out", measure, {name}, point) for name in context)
    return Round(asked=asked, noted=search)


def verify_round(search: SearchState) -> Round:
    """Replay each open event without S, unless its context was replayed before."""
    asked = [
        leave_out(state.event_id, "removal", "text", search.removal.ids)
        for state in search.open_events()
        if search.context(state) not in state.replays.by_context
    ]
    return Round(asked=asked, noted=search)


def is_flooded(search: SearchState) -> bool:
    """Tell whether step 5 goes on for so long that step 7 begins beside it."""
    return search.closure_rounds >= PATIENCE


def neighbour_room(search: SearchState) -> int:
    """Return how many memories that resemble attributed ones the next round has room for."""
    return min(NEIGHBOUR_CANDIDATES << search.neighbours.rounds, len(search.given.memory))


def neighbour_round(search: SearchState) -> Round:
    """Measure memories alone that resemble an attributed one, each at the event where that one weighs most."""
    chosen = dict(itertools.islice(_neighbours(search).items(), neighbour_room(search)))
    asked = [
        keep_only(event_id, "keep_one", measure, (entry_id,), point)
        for entry_id, event_id in chosen.items()
        for measure, point in search.given.seen.measures(search.events[event_id])
    ]
    known = replace(search.neighbours, asked=search.neighbours.asked | chosen.keys())
    return Round(asked=asked, noted=replace(search, neighbours=known))


def unasked_neighbours(search: SearchState) -> int:
    """Return how many memories that resemble attributed ones no round had room for."""
    return len(_neighbours(search))


def _neighbours(search: SearchState) -> dict[str, str]:
    """Return the memories yet to be asked about that resemble an attributed one, each with the event to ask it at."""
    found: dict[str, str] = {}
    for removed in sorted(search.removal.ids):
        event_id = _best_event(search, removed)
        if event_id is None:
            continue
        measured = search.events[event_id].influences
        for entry_id in search.given.resembles.get(removed, ()):
            known = entry_id in search.removal.ids or entry_id in measured or entry_id in search.neighbours.asked
            if not known and entry_id in search.given.memory:
                found.setdefault(entry_id, event_id)
    return found


def _best_event(search: SearchState, entry_id: str) -> str | None:
    """Return the event on which this memory weighs most: the most sensitive instrument for its like."""
    weighed = [
        (state.alone(entry_id), state.event_id) for state in search.events.values() if entry_id in state.influences
    ]
    return max(weighed)[1] if weighed else None
