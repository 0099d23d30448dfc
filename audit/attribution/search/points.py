"""Steps 1 and 2 of the search: which events memory can have caused, and the points at which their odds are taken.

Points are the words of the harm, or partings of the harmful from a clean replay. Partings that turn out to be style
are followed by later ones, as far as there are any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import keep_only, leave_out
from memory_audit.attribution.search.divergence import decision_point, next_point
from memory_audit.attribution.search.harm_span import harm_span, span_points
from memory_audit.attribution.search.plan import baseline_round, continued, formless
from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.attribution.replays.harm import HarmScorer
    from memory_audit.attribution.search.controls import Placebos
    from memory_audit.attribution.search.state import EventState, Phase, SearchState

__all__ = ["deepen", "go_deeper", "read_baseline", "read_gate", "read_points", "renew_words"]


def read_gate(search: SearchState, scorer: HarmScorer | None) -> None:
    """Judge each event by its replays with the whole store and with no memory, and take the first points of the open.

    Args:
        search: What is known; every event's two replays are.
        scorer: Finds the words of the harm in an answer; None takes partings only.
    """
    for event_id, state in search.states.items():
        state.full = search.measured[leave_out(event_id, "full", "text", frozenset())]
        state.gate = search.measured[keep_only(event_id, "gate", "text", ())]
        state.replayed = {search.context(state): state.full, (): state.gate}
        if not (state.full.fits and state.gate.fits):
            state.status, state.reason = "not examined", "its question does not fit into the backbone's context"
        elif state.full.harm is None or state.gate.harm is None:
            state.status, state.reason = "not examined", "the harm scorer could not judge the replay"
        elif state.full.harm < HARMFUL:
            state.status, state.reason = "not reproduced", "the replay with every memory in place shows no harm"
        elif state.gate.harm >= HARMFUL:
            state.status = "memory is not the cause"
            state.reason = "harm stays when every memory is taken away"
        elif search.settings.attribution == "set":
            _take_points(state, scorer)


def _take_points(state: EventState, scorer: HarmScorer | None) -> None:
    """Start with the words of the harm, where the answer is a single turn, and the first parting."""
    if state.full is None or state.gate is None:
        raise ValueError("the gate was not replayed")
    _point_at_words(state, scorer, state.full)
    _part(state, state.full, state.gate)


def _point_at_words(state: EventState, scorer: HarmScorer | None, replay: Outcome) -> bool:
    """Take the words of the harm in a replay as points, unless these are pointed at already; True if that was so."""
    if scorer is None or len(replay.answers) != 1:
        return False
    (answer,) = replay.answers
    span = harm_span(scorer, state.event.query, answer)
    if span is None or (words := answer[slice(*span)].strip()) == state.said:
        return False
    state.said, state.past = words, len(state.points)
    state.points += span_points(answer, span)
    state.spoken = len(state.points)
    return True


def _part(state: EventState, replay: Outcome, gate: Outcome) -> None:
    point = decision_point(replay.answers, gate.answers)
    if point is not None:
        state.points.append(point)


def renew_words(states: Iterable[EventState], scorer: HarmScorer | None) -> bool:
    """Point at the words of the harm that is left, where these are others than were measured; True if there are any.

    Poison may bring a payload each, an address or a link. The answer has only that of one, and the others make it less
    likely: they look harmless until it is gone.
    """
    renewed = False
    for state in states:
        if not state.speaks or state.after is None or state.gate is None or state.after.context in state.pointed:
            continue
        state.pointed.add(state.after.context)
        if _point_at_words(state, scorer, state.after):
            _part(state, state.after, state.gate)
            state.suspects, state.acquitted, state.groups, state.screening = set(), set(), [], True
            renewed = True
    return renewed


def read_points(search: SearchState) -> bool:
    """Take in the forced continuations; True if another point is worth asking for."""
    grew = False
    for event_id, state in search.live():
        if not 0 < state.partings < state.depth:
            continue
        question = continued(event_id, state)
        asked = search.measured.get(question)
        point = None if asked is None else next_point(state.points[-1], asked.output)
        if point is not None and asked is not None:
            if asked.log_odds_nats is not None:
                search.measured.note(replace(question, measure="odds", point=len(state.points)), asked)
            state.points.append(point)
            grew = grew or state.partings < state.depth
    return grew


def read_baseline(search: SearchState, placebos: Placebos) -> Phase:
    """Take in what the points are like without a cause; return where that leads.

    A server without logprobs shows only now: its events are asked again, by samples or by verdict.
    """
    placebos.settle_form(search.live())
    if any(item not in search.measured for item in baseline_round(search, placebos)):
        return "baseline"
    lost = False
    for event_id, state in search.live():
        placebos.read_partings(event_id, state)
        if any(odds is None for odds in state.baseline.values()):
            state.points, state.spoken, state.past, state.baseline, lost = [], 0, 0, {}, True
    if lost:
        return "baseline"
    doubted = formless(search, placebos)
    deeper = [deepen(search, state) for _, state in search.live() if placebos.is_worn(state)]
    if go_deeper(search, (state for _, state in doubted)) or any(deeper):
        return "points"
    if any(item not in search.measured for event_id, state in doubted
           for item in placebos.doubting_form(event_id, state)):  # fmt: skip
        return "baseline"
    for event_id, state in doubted:
        placebos.read_doubt(event_id, state)
    return "reference" if formless(search, placebos) else "sufficiency"


def go_deeper(search: SearchState, states: Iterable[EventState]) -> bool:
    """Ask for later points of events whose first ones are form or convict nobody; True if there may be any."""
    half = search.settings.most_points // 2
    return any([deepen(search, state, half) for state in states])  # noqa: C419 - every one deepens


def deepen(search: SearchState, state: EventState, most: int | None = None) -> bool:
    """Want later points of an event that may have some, for those so far are style; True if it may.

    Args:
        search: What is known.
        state: The event.
        most: Partings it may have in all; None is `most_points`.
    """
    most = search.settings.most_points if most is None else most
    deeper = state.partings == state.depth < most
    if deeper:
        state.style, state.depth = state.depth, min(state.depth + search.settings.points, most)
    return deeper
