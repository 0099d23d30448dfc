"""Where an attribution depends on control memories not yet asked: a baseline at a divergence point is within bounds.

It lies between the odds with no memory and the least of the control memories asked so far (`controls`). A memory that
is attributed against the upper bound is attributed; one that is not even against the lower is not. What lies between
calls for another control memory, where the bounds lie furthest apart first. All are asked where groups are shown, at an
event that attributes a large share of the store, and at every event once harm stays on replay at one. Credit decides
then what is removed next, and what is put back. Credit that is reported may lie below what all control memories
would give, never above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from memory_audit.attribution.search.attributed import AttributionRule
    from memory_audit.attribution.search.controls import ControlMemories
    from memory_audit.attribution.search.state import EventState, SearchState

__all__ = [
    "event_slack_nats", "tighten_before_most", "tighten_everywhere", "tighten_large_shares", "tighten_undecided",
]  # fmt: skip


def tighten_undecided(search: SearchState, controls: ControlMemories) -> bool:
    """Want another control memory where the attribution of a memory outside of S depends on it; True if any is."""
    settings = search.settings
    bounds: dict[str, list[tuple[float, str]]] = {}
    shown = search.neighbours_asked.union(*(search.context(state) for _, state in search.evidence_events()))
    for event_id, state in search.evidence_events():
        for entry_id in (state.influences.keys() & shown) - search.removed.keys():
            most = _largest_gain(search, controls, event_id, state, entry_id)
            if most is not None:
                bounds.setdefault(entry_id, []).append((most, event_id))
    wanted: set[tuple[str, int]] = set()
    for gains in bounds.values():
        total = sum(gain - settings.weak_nats for gain, _ in gains)
        if max(gains)[0] < settings.attribution_nats and total < settings.attribution_nats - settings.weak_nats:
            continue
        unsure = [
            (controls.slack_nats(event_id, search.states[event_id], point), event_id, point)
            for _, event_id in gains
            for point in _divergence_points(search, search.states[event_id])
        ]
        slack, event_id, point = max(unsure, default=(0.0, "", 0))
        if slack > 0.0:
            wanted.add((event_id, point))
    return _want_controls(search, controls, wanted)


def tighten_large_shares(search: SearchState, controls: ControlMemories, rule: AttributionRule) -> bool:
    """Want all control memories at events that attribute a large share of the store; True if any is wanted."""
    return _tighten(
        search, controls,
        [
            (name, state)
            for name, state in search.evidence_events()
            if rule.is_large_share(len(rule.attributed_by(state)))
        ],
    )  # fmt: skip


def tighten_before_most(search: SearchState, controls: ControlMemories, rule: AttributionRule) -> bool:
    """Want all control memories before most of the store joins S: which event is excluded depends on them."""
    attributed = {entry_id for _, state in search.evidence_events() for entry_id in rule.attributed_by(state)}
    most = rule.is_most_of_store(len(attributed | search.removed.keys()))
    return most and tighten_everywhere(search, controls)


def tighten_everywhere(search: SearchState, controls: ControlMemories) -> bool:
    """Want all control memories where harm stays: credit at all events decides what is next, and what is put back.

    Returns:
        True if any is wanted: then every event is to be judged anew.
    """
    return _tighten(search, controls, search.evidence_events())


def _tighten(search: SearchState, controls: ControlMemories, events: Iterable[tuple[str, EventState]]) -> bool:
    wanted = {
        (event_id, point)
        for event_id, state in events
        for point in _divergence_points(search, state)
        if controls.slack_nats(event_id, state, point) > 0.0
    }
    return _want_controls(search, controls, wanted)


def _want_controls(search: SearchState, controls: ControlMemories, wanted: AbstractSet[tuple[str, int]]) -> bool:
    for event_id, point in wanted:
        controls.want_another(event_id, search.states[event_id], point)
    return bool(wanted)


def event_slack_nats(search: SearchState, controls: ControlMemories, event_id: str, state: EventState) -> float:
    """How much lower the baselines of an event may be than is known by now, in nats."""
    return max(
        (controls.slack_nats(event_id, state, point) for point in _divergence_points(search, state)), default=0.0
    )


def _largest_gain(
    search: SearchState, controls: ControlMemories, event_id: str, state: EventState, entry_id: str
) -> float | None:
    """How much a memory raises the odds at most, in nats, over the divergence points where it was measured."""
    gains = [
        odds - floor
        for point in _divergence_points(search, state)
        for odds, floor in ((search.measured.alone(event_id, entry_id, point), controls.floor(event_id, point)),)
        if odds is not None and floor is not None
    ]
    return min(gains, default=None)


def _divergence_points(search: SearchState, state: EventState) -> list[int]:
    if state.measures_span:
        return []
    return [point for measure, point in search.measured.measures(state) if measure == "odds"]
