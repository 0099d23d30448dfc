"""Steps 1 and 2 of the search: which events memory can have caused, and the points at which their odds are taken.

Points are the words of the harm span, or divergence points, where the harmful replay leaves a clean one. Divergence
points that only show wording are retired, and followed by later ones, as far as there are any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import keep_only, leave_out
from memory_audit.attribution.search.divergence import first_divergence, next_divergence
from memory_audit.attribution.search.harm_span import harm_span, span_points
from memory_audit.attribution.search.plan import baseline_round, continued, events_all_format
from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.attribution.replays.harm import HarmScorer
    from memory_audit.attribution.search.controls import ControlMemories
    from memory_audit.attribution.search.state import EventState, SearchPhase, SearchState

__all__ = [
    "read_baseline", "read_continuations", "read_reproduction", "renew_span", "retire_points", "retire_points_of",
]  # fmt: skip


def read_reproduction(search: SearchState, scorer: HarmScorer | None) -> None:
    """Judge each event by its replays with the whole store and with no memory, and take the first points of the open.

    Args:
        search: What is known; every event's two replays are.
        scorer: Finds the harm span of an answer; None takes divergence points only.
    """
    for event_id, state in search.states.items():
        state.full = search.measured[leave_out(event_id, "full", "text", frozenset())]
        state.without_memory = search.measured[keep_only(event_id, "no_memory", "text", ())]
        state.replayed = {search.context(state): state.full, (): state.without_memory}
        if not (state.full.fits and state.without_memory.fits):
            state.status, state.reason = "not examined", "its question does not fit into the backbone's context"
        elif state.full.harm is None or state.without_memory.harm is None:
            state.status, state.reason = "not examined", "the harm scorer could not judge the replay"
        elif state.full.harm < HARMFUL:
            state.status, state.reason = "not reproduced", "the replay with every memory in place shows no harm"
        elif state.without_memory.harm >= HARMFUL:
            state.status = "memory is not the cause"
            state.reason = "harm stays when every memory is taken away"
        elif search.settings.attribution == "set":
            _take_points(state, scorer)


def _take_points(state: EventState, scorer: HarmScorer | None) -> None:
    """Start with the harm span, where the answer is a single turn, and the first divergence point."""
    if state.full is None or state.without_memory is None:
        raise ValueError("the event was not replayed")
    _take_span(state, scorer, state.full)
    _take_divergence(state, state.full, state.without_memory)


def _take_span(state: EventState, scorer: HarmScorer | None, replay: Outcome) -> bool:
    """Take the words of a replay's harm span as points, unless they are the points already; True if they were taken."""
    if scorer is None or len(replay.answers) != 1:
        return False
    (answer,) = replay.answers
    span = harm_span(scorer, state.event.query, answer)
    if span is None or (words := answer[slice(*span)].strip()) == state.span_text:
        return False
    state.span_text, state.span_start = words, len(state.points)
    state.points += span_points(answer, span)
    state.span_end = len(state.points)
    return True


def _take_divergence(state: EventState, replay: Outcome, clean: Outcome) -> None:
    point = first_divergence(replay.answers, clean.answers)
    if point is not None:
        state.points.append(point)


def renew_span(states: Iterable[EventState], scorer: HarmScorer | None) -> bool:
    """Take the span of the harm that is left, where it is another than was measured; True if there is any.

    Poison may bring a payload each, an address or a link. The answer has only that of one, and the others make it less
    likely: they look harmless until it is gone.
    """
    renewed = False
    for state in states:
        after, clean = state.after, state.without_memory
        if not state.measures_span or after is None or clean is None or after.context in state.span_contexts:
            continue
        state.span_contexts.add(after.context)
        if _take_span(state, scorer, after):
            _take_divergence(state, after, clean)
            state.screened_in, state.screened_out, state.groups, state.screening = set(), set(), [], True
            renewed = True
    return renewed


def read_continuations(search: SearchState) -> bool:
    """Take in the forced continuations; True if another point is worth asking for."""
    grew = False
    for event_id, state in search.open_events():
        if not 0 < state.divergences < state.wanted_divergences:
            continue
        question = continued(event_id, state)
        asked = search.measured.get(question)
        point = None if asked is None else next_divergence(state.points[-1], asked.output)
        if point is not None and asked is not None:
            if asked.log_odds_nats is not None:
                search.measured.note(replace(question, measure="odds", point=len(state.points)), asked)
            state.points.append(point)
            grew = grew or state.divergences < state.wanted_divergences
    return grew


def read_baseline(search: SearchState, controls: ControlMemories) -> SearchPhase:
    """Take in what the points are like without a cause; return where that leads.

    A server without logprobs shows only now: its events are asked again, by samples or by the harm of one replay.
    """
    controls.settle_format(search.open_events())
    if any(item not in search.measured for item in baseline_round(search, controls)):
        return "baseline"
    lost = False
    for event_id, state in search.open_events():
        controls.read_divergences(event_id, state)
        if any(odds is None for odds in state.baseline.values()):
            state.points, state.span_start, state.span_end, state.baseline, lost = [], 0, 0, {}, True
    if lost:
        return "baseline"
    all_format = events_all_format(search, controls)
    retired = [retire_points(search, state) for _, state in search.open_events() if controls.has_only_retired(state)]
    if retire_points_of(search, (state for _, state in all_format)) or any(retired):
        return "divergence"
    if any(item not in search.measured for event_id, state in all_format
           for item in controls.format_checks(event_id, state)):  # fmt: skip
        return "baseline"
    for event_id, state in all_format:
        controls.read_format_checks(event_id, state)
    return "reference" if events_all_format(search, controls) else "sufficiency"


def retire_points_of(search: SearchState, states: Iterable[EventState]) -> bool:
    """Retire the points of events that attribute nothing by them; True if later ones may be there."""
    half = search.settings.most_points // 2
    return any([retire_points(search, state, half) for state in states])  # noqa: C419 - of every one


def retire_points(search: SearchState, state: EventState, most: int | None = None) -> bool:
    """Retire an event's divergence points, and want later ones where it may have some; True if it may.

    Args:
        search: What is known.
        state: The event.
        most: Divergence points it may have in all; None is `most_points`.
    """
    most = search.settings.most_points if most is None else most
    later = state.divergences == state.wanted_divergences < most
    if later:
        state.retired_divergences = state.wanted_divergences
        state.wanted_divergences = min(state.wanted_divergences + search.settings.points, most)
    return later
