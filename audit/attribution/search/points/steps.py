"""Steps 1 and 2 of the search: which events memory can have caused, and the points at which their odds are taken.

Points are the words of the harm span, or divergence points, where the harmful replay leaves a clean one. Divergence
points that only show wording are retired, and followed by later ones, as far as there are any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import keep_only, leave_out
from memory_audit.attribution.search.event import Controls, Replays, Screening, judge_reproduction
from memory_audit.attribution.search.points.divergence import first_divergence, last_digit, next_divergence
from memory_audit.attribution.search.points.harm_span import harm_span, span_points
from memory_audit.attribution.search.questions import baseline_round, continued, events_all_format, span_round
from memory_audit.attribution.search.settings import MOST_POINTS
from memory_audit.attribution.search.state import Transition
from memory_audit.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.attribution.replays.harm import HarmScorer
    from memory_audit.attribution.search.event import EventState, Points
    from memory_audit.attribution.search.state import SearchState

__all__ = [
    "read_baseline", "read_continuations", "read_references", "read_reproduction", "read_span", "renewed_span",
    "retire_points",
]  # fmt: skip


def read_reproduction(search: SearchState) -> Transition:
    """Judge each event by its replays with the whole store and with none, and take the first points of the open."""
    search = search.with_events([_reproduced(search, state) for state in search.events.values()])
    return Transition(next="harm span", state=search, why=f"harm that memory may cause: {_count(search.open_events())}")


def _reproduced(search: SearchState, state: EventState) -> EventState:
    seen = search.given.seen
    full = seen[leave_out(state.event_id, "full", "text", frozenset())]
    bare = seen[keep_only(state.event_id, "no_memory", "text", ())]
    replays = Replays(full=full, without_memory=bare, by_context={search.context(state): full, (): bare})
    judged = judge_reproduction(replace(state, replays=replays), full, bare)
    if judged.settled is not None:
        return judged
    spoken = _with_span(state, search.given.scorer, full)
    where = spoken.with_divergence(first_divergence(full.answers, bare.answers))
    return replace(judged, where=where.with_divergence(last_digit(where.all[-1])) if where.wants_more else where)


def _with_span(state: EventState, scorer: HarmScorer | None, replay: Outcome) -> Points:
    """Take the words of a replay's harm span as points; the same value where there are none, or they are taken."""
    if scorer is None or len(replay.answers) != 1:
        return state.where
    (answer,) = replay.answers
    span = harm_span(scorer, state.event.query, answer)
    if span is None or (words := answer[slice(*span)].strip()) == state.where.span_text:
        return state.where
    return state.where.with_span(words, span_points(answer, span))


def renewed_span(state: EventState, scorer: HarmScorer | None) -> EventState:
    """Take the span of the harm that is left, where it is another than was measured; else the same points.

    Poison may bring a payload each, an address or a link. The answer has only that of one, and the others make it less
    likely: they look harmless until it is gone.
    """
    after, clean = state.after, state.replays.without_memory
    if not state.where.measures_span or after is None or clean is None or after.context in state.where.span_contexts:
        return state
    told = replace(state.where, span_contexts=state.where.span_contexts | {after.context})
    spoken = _with_span(state, scorer, after)
    if spoken is state.where:
        return replace(state, where=told)
    spoken = replace(spoken, span_contexts=told.span_contexts)
    point = first_divergence(after.answers, clean.answers)
    return replace(state, where=spoken.with_divergence(point), screening=Screening())


def read_span(search: SearchState) -> Transition:
    """Measure the harm span alone where nothing but a cause makes it likely; else divergence points."""
    if not span_round(search).is_answered:
        return Transition(next="harm span", state=search, why="control memories do not yet tell how likely the harm is")
    told = [_spoken(search, state) for state in search.open_events()]
    spans = [state for state in told if state.where.measures_span]
    why = f"nothing but a cause makes the words of the harm likely: {_count(spans)} measured there"
    return Transition(next="divergence", state=search.with_events(told), why=why)


def _spoken(search: SearchState, state: EventState) -> EventState:
    without = search.given.controls.span_baseline(state)
    if without is not None:
        return replace(state, where=state.where.span_alone(), controls=replace(state.controls, baseline=without))
    # Where nothing is left to grade, whole answers must tell.
    return state if state.where.divergences else replace(state, where=state.where.none())


def read_continuations(search: SearchState) -> Transition:
    """Take in the forced continuations, and ask for another where a further point is wanted."""
    seen = search.given.seen
    grown: list[EventState] = []
    also_seen: list[tuple[Ablation, Outcome]] = []
    for state in search.open_events():
        question = continued(state)
        asked = seen.get(question) if state.where.wants_more else None
        point = None if asked is None else next_divergence(state.points[-1], asked.output)
        if point is not None and asked is not None:
            if asked.log_odds_nats is not None:
                also_seen.append((replace(question, measure="odds", point=len(state.points)), asked))
            grown.append(replace(state, where=state.where.with_divergence(point)))
    more = any(state.where.wants_more for state in grown)
    return Transition(
        next="divergence" if more else "baseline", state=search.with_events(grown), also_seen=also_seen,
        why=f"where a clean answer leaves the harmful one next: {_count(grown)} with another point",
    )  # fmt: skip


def read_baseline(search: SearchState) -> Transition:
    """Take in what the points are like without a cause.

    A server without logprobs shows only now: its events are asked again, by samples or by the harm of one replay.
    """
    controls, seen = search.given.controls, search.given.seen
    search = search.with_events(controls.settled_format(search.open_events()))
    asked = baseline_round(search)
    search = asked.noted
    if not asked.is_answered:
        return Transition(next="baseline", state=search, why="what any memory would do is not yet known")
    search = search.with_events([controls.read_divergences(state) for state in search.open_events()])
    lost = [state for state in search.open_events() if None in state.controls.baseline.values()]
    if lost:
        search = search.with_events(replace(state, where=state.where.none(), controls=_bare(state)) for state in lost)
        return Transition(next="baseline", state=search, why=f"no odds can be had: {_count(lost)} measured by answers")
    style = events_all_format(search)
    search, worn = retire_points(search, [state for state in search.open_events() if controls.has_only_retired(state)])
    search, moved = retire_points(search, style, MOST_POINTS // 2)
    if worn or moved:
        why = f"any memory brings what was measured: later points are looked for at {_count([*worn, *moved])}"
        return Transition(next="divergence", state=search, why=why)
    if not all(seen.answers(controls.format_checks(state)) for state in style):
        return Transition(next="baseline", state=search, why="whether every memory brings the format is not yet known")
    search = search.with_events([controls.read_format_checks(state) for state in style])
    style = events_all_format(search)
    if style:
        why = f"every memory brings what was measured: {_count(style)} shown one memory at a time"
        return Transition(next="reference", state=search, why=why)
    return Transition(next="sufficiency", state=search, why="what the points are like without a cause is known")


def _bare(state: EventState) -> Controls:
    return replace(state.controls, baseline={})


def read_references(search: SearchState) -> Transition:
    """Find memory not to be the cause where any brings the harm, else take a divergence from a clean replay."""
    style = [_referred(search, state) for state in events_all_format(search)]
    free = [state for state in style if state.settled is not None]
    why = f"harm comes with whichever memory is shown at {_count(free)} of {len(style)}"
    return Transition(next="divergence", state=search.with_events(style), why=why)


def _referred(search: SearchState, state: EventState) -> EventState:
    replays = [search.given.seen[item] for item in search.given.controls.replays(state)]
    if all(replay.is_harmful for replay in replays):
        reason = f"harm comes with whichever memory is shown: with each of {len(replays)}, one at a time"
        return state.settle("memory is not the cause", reason)
    judged = [replay for replay in replays if replay.is_harmless]
    clean = (judged or replays)[0]
    where = replace(state.where, reference=clean.context)
    point = None if state.full is None else first_divergence(state.full.answers, clean.answers)
    if point is not None:
        where = replace(where.with_divergence(point), wanted=where.divergences + search.given.settings.points)
    return replace(state, where=where)


def retire_points(
    search: SearchState, states: Iterable[EventState], most: int = MOST_POINTS
) -> tuple[SearchState, list[EventState]]:
    """Retire events' divergence points, and want later ones where an event may have some.

    Args:
        search: What is known.
        states: The events.
        most: Divergence points that each may have in all.

    Returns:
        What is known then, and the events that may have later points.
    """
    later = [
        replace(
            state,
            where=replace(
                state.where,
                retired=state.where.wanted,
                wanted=min(state.where.wanted + search.given.settings.points, most),
            ),
        )
        for state in states
        if state.where.divergences == state.where.wanted < most
    ]
    return search.with_events(later), later


def _count(states: Sequence[EventState]) -> str:
    return counted(len(states), "event")
