"""Where a verdict hangs on placebos that were not asked: the baseline of a parting is known within bounds only.

It lies between the odds with no memory and the least of the placebos asked so far (`placebos`). A memory that is
convicted against the upper bound is convicted; one that is not even against the lower is cleared. What lies between
calls for another placebo, where the bounds lie furthest apart first. All are asked where groups are shown, at an event
that speaks against a large share of the store, and at every event once harm stays on replay at one: then credit decides
who is next, and who is put back. Credit that is reported may lie below what all placebos would say, never above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from memory_audit.attribution.search.attributed import Conviction
    from memory_audit.attribution.search.controls import Placebos
    from memory_audit.attribution.search.state import EventState, SearchState

__all__ = ["doubt_baselines", "doubt_crowds", "doubt_most", "doubt_stuck", "lowest"]


def doubt_baselines(search: SearchState, placebos: Placebos) -> bool:
    """Want another placebo wherever the conviction of a memory outside of S hangs on it; True if any is wanted."""
    settings = search.settings
    bounds: dict[str, list[tuple[float, str]]] = {}
    suspects = search.neighbours_asked.union(*(search.context(state) for _, state in search.heard()))
    for event_id, state in search.heard():
        for entry_id in (state.influences.keys() & suspects) - search.removed.keys():
            most = _most(search, placebos, event_id, state, entry_id)
            if most is not None:
                bounds.setdefault(entry_id, []).append((most, event_id))
    wanted: set[tuple[str, int]] = set()
    for gains in bounds.values():
        total = sum(gain - settings.weak_nats for gain, _ in gains)
        if max(gains)[0] < settings.culprit_nats and total < settings.culprit_nats - settings.weak_nats:
            continue
        unsure = [
            (placebos.margin(event_id, search.states[event_id], point), event_id, point)
            for _, event_id in gains
            for point in _partings(search, search.states[event_id])
        ]
        margin, event_id, point = max(unsure, default=(0.0, "", 0))
        if margin > 0.0:
            wanted.add((event_id, point))
    return _doubt(search, placebos, wanted)


def doubt_crowds(search: SearchState, placebos: Placebos, conviction: Conviction) -> bool:
    """Want all placebos at events that convict a large share of the store; True if any is wanted."""
    return _doubt_all(
        search, placebos,
        [(name, state) for name, state in search.heard() if conviction.is_large(len(conviction.by(state)))],
    )  # fmt: skip


def doubt_most(search: SearchState, placebos: Placebos, conviction: Conviction) -> bool:
    """Want all placebos before most of the store is convicted: which event is not to be heard hangs on them."""
    convicted = {entry_id for _, state in search.heard() for entry_id in conviction.by(state)}
    return conviction.is_most(len(convicted | search.removed.keys())) and doubt_stuck(search, placebos)


def doubt_stuck(search: SearchState, placebos: Placebos) -> bool:
    """Want all placebos where harm stays somewhere: who is next, and who is put back, is told by credit at all events.

    Returns:
        True if any is wanted: then every event is to be judged anew.
    """
    return _doubt_all(search, placebos, search.heard())


def _doubt_all(search: SearchState, placebos: Placebos, events: Iterable[tuple[str, EventState]]) -> bool:
    wanted = {
        (event_id, point)
        for event_id, state in events
        for point in _partings(search, state)
        if placebos.margin(event_id, state, point) > 0.0
    }
    return _doubt(search, placebos, wanted)


def _doubt(search: SearchState, placebos: Placebos, wanted: AbstractSet[tuple[str, int]]) -> bool:
    for event_id, point in wanted:
        placebos.doubt(event_id, search.states[event_id], point)
    return bool(wanted)


def lowest(search: SearchState, placebos: Placebos, event_id: str, state: EventState) -> float:
    """How much lower the baselines of an event may be than is known by now, in nats."""
    return max((placebos.margin(event_id, state, point) for point in _partings(search, state)), default=0.0)


def _most(search: SearchState, placebos: Placebos, event_id: str, state: EventState, entry_id: str) -> float | None:
    """How much a memory raises the odds at most, over the partings where it was measured."""
    gains = [
        odds - floor
        for point in _partings(search, state)
        for odds, floor in ((search.measured.alone(event_id, entry_id, point), placebos.floor(event_id, point)),)
        if odds is not None and floor is not None
    ]
    return min(gains, default=None)


def _partings(search: SearchState, state: EventState) -> list[int]:
    if state.speaks:
        return []
    return [point for measure, point in search.measured.measures(state) if measure == "odds"]
