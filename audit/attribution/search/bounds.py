"""Where an attribution depends on control memories not yet asked: a baseline at a divergence point is within bounds.

It lies between the odds with no memory and the least of the control memories asked so far (`controls`). A memory that
is attributed against the upper bound is attributed; one that is not even against the lower is not. What lies between
calls for another control memory, where the bounds lie furthest apart first. All are asked where groups are shown, at an
event that attributes a large share of the store, and at every event once harm stays on replay at one. Evidence decides
then what is put back. Credit that is reported may lie below what all control memories would give, never above.

Every question here returns the points, by event id and number, at which another control memory is wanted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.search.settings import WEAK_NATS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.state import SearchState

__all__ = [
    "event_slack_nats", "loose_before_most", "loose_everywhere", "loose_in_large_shares", "undecided",
    "wanting_controls",
]  # fmt: skip

Loose = set[tuple[str, int]]


def undecided(search: SearchState) -> Loose:
    """Where the attribution of a memory outside of S depends on another control memory."""
    given = search.given
    bounds: dict[str, list[tuple[float, str]]] = {}
    shown = search.neighbours.asked.union(*(search.context(state) for state in search.evidence_events()))
    for state in search.evidence_events():
        for entry_id in (state.influences.keys() & shown) - search.removal.ids:
            most = _largest_gain(search, state, entry_id)
            if most is not None:
                bounds.setdefault(entry_id, []).append((most, state.event_id))
    wanted: Loose = set()
    for gains in bounds.values():
        needed, total = given.rule.threshold_nats, sum(gain - WEAK_NATS for gain, _ in gains)
        if max(gains)[0] < needed and total < needed - WEAK_NATS:
            continue
        unsure = [
            (given.controls.slack_nats(search.events[event_id], point), event_id, point)
            for _, event_id in gains
            for point in given.seen.divergences(search.events[event_id])
        ]
        slack, event_id, point = max(unsure, default=(0.0, "", 0))
        if slack > 0.0:
            wanted.add((event_id, point))
    return wanted


def loose_in_large_shares(search: SearchState) -> Loose:
    """Where control memories are left to ask at events that attribute a large share of the store."""
    rule = search.given.rule
    return _loose(
        search, (state for state in search.evidence_events() if rule.is_large_share(len(rule.attributed_by(state))))
    )


def loose_before_most(search: SearchState) -> Loose:
    """Where they are left before most of the store joins S: which event is excluded depends on them."""
    rule = search.given.rule
    attributed = {entry_id for state in search.evidence_events() for entry_id in rule.attributed_by(state)}
    return loose_everywhere(search) if rule.is_most_of_store(len(attributed | search.removal.ids)) else set()


def loose_everywhere(search: SearchState) -> Loose:
    """Where they are left at all: where harm stays, evidence decides what is put back."""
    return _loose(search, search.evidence_events())


def _loose(search: SearchState, events: Iterable[EventState]) -> Loose:
    given = search.given
    return {
        (state.event_id, point)
        for state in events
        for point in given.seen.divergences(state)
        if given.controls.slack_nats(state, point) > 0.0
    }


def wanting_controls(search: SearchState, loose: Loose) -> SearchState:
    """Want one more control memory at each of these points."""
    by_event: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for event_id, point in loose:
        by_event[event_id][point] = len(search.given.controls.at_divergence(search.events[event_id], point)) - 1
    return search.with_events(
        replace(state, controls=replace(state.controls, wanted={**state.controls.wanted, **points}))
        for event_id, points in by_event.items()
        for state in (search.events[event_id],)
    )


def event_slack_nats(search: SearchState, state: EventState) -> float:
    """How much lower the baselines of an event may be than is known by now, in nats."""
    given = search.given
    return max((given.controls.slack_nats(state, point) for point in given.seen.divergences(state)), default=0.0)


def _largest_gain(search: SearchState, state: EventState, entry_id: str) -> float | None:
    """How much a memory raises the odds at most, in nats, over the divergence points where it was measured."""
    given = search.given
    gains = [
        odds - floor
        for point in given.seen.divergences(state)
        for odds, floor in ((given.seen.alone(state, entry_id, point), given.controls.floor(state, point)),)
        if odds is not None and floor is not None
    ]
    return min(gains, default=None)
