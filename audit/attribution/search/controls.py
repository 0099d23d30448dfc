"""Control memories: what would any memory do? The baseline against which a memory's effect counts.

A memory of any kind may bring a format that the model does not use by itself ("Thought:", "Answer:"). Such a format
effect is no harm. So memories that an event did not use are shown alone at its points, and what they do is attributed
to no memory. Nor is what comes with no memory at all, which no planted control can lower. The *median* of them counts
at the harm span, and the *least* at divergence points, so that poison among them raises the baseline only where all are
poison. There they are asked one after the other, as far as a format effect or an attribution depends on the next
(`bounds`). And before every point of an event is given up as a format effect, others are asked that are harder to
plant: ones drawn from the store, and the context's own.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import keep_only
from memory_audit.attribution.search.measurements import log_probability
from memory_audit.attribution.search.points.format_points import place_of, shared_format
from memory_audit.attribution.search.settings import CONTROL_MEMORIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memory_audit.attribution.replays.ablation import Ablation
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.event import Controls, EventState
    from memory_audit.attribution.search.measurements import Measurements
    from memory_audit.attribution.search.settings import SearchSettings

__all__ = ["ControlMemories"]

SPAN_SURPRISAL_NATS = 4.0
"""Least surprisal (-log p) of the harm span with control memories where the span is what is measured."""


class ControlMemories:
    """Names what is asked of control memories, and reads the answers."""

    def __init__(
        self, memory: RankedMemory, seen: Measurements, settings: SearchSettings, events: Iterable[str] = ()
    ) -> None:
        self._memory, self._seen, self._format_nats = memory, seen, settings.attribution_nats
        self._all: dict[str, list[str]] = {}
        self._rotation = {event_id: number for number, event_id in enumerate(events)}

    def without(self, state: EventState, point: int) -> list[Ablation]:
        """Ask for the odds at a point without a cause: with each control memory, or with none where these are too few.

        They are the memories that match the query least, and the one whose clean replay the point comes from.
        """
        unused = self._memory.unused(state.event.query, CONTROL_MEMORIES, logged=state.event.retrieved)
        if len(unused) < CONTROL_MEMORIES:
            return [_no_memory(state, point)]
        shown = dict.fromkeys([*(entry.entry_id for entry in unused), *state.where.reference])
        return [_alone(state, entry_id, point) for entry_id in shown]

    def for_span(self, state: EventState) -> list[Ablation]:
        """Ask how likely the harm span is without a cause: with as many control memories as tell, more than half first.

        With no memory, too, where these do not say it: whoever plants memories that suppress the span would have all
        others seem to bring it.
        """
        asked = [self.without(state, point) for point in state.where.span()]
        majority = [item for items in asked for item in items[: len(items) // 2 + 1]]
        if not self._seen.answers(majority) or self._is_span_likely_anyway(state):
            return majority
        bare = [_no_memory(state, point) for point in state.where.span()]
        return list(dict.fromkeys([*bare, *(item for items in asked for item in items)]))

    def at_divergence(self, state: EventState, point: int) -> list[Ablation]:
        """Ask for the odds at a divergence point with no memory, and with as many control memories as tell.

        Only the least of them counts, and only above the odds with no memory: one that falls below these ends it. One
        that falls short of a format effect ends it too, where no attribution depends on the rest
        (`memory_audit.attribution.search.bounds`). The first one rotates, so that events that diverge alike ask
        different ones (`shared_format`).
        """
        bare, shown = _no_memory(state, point), self.without(state, point)
        if bare in shown:
            return shown
        first = self._rotation.get(state.event_id, 0) % len(shown)
        asked, wanted = [bare], 1 + state.controls.wanted.get(point, 0)
        for item in [*shown[first:], *shown[:first]]:
            asked.append(item)
            above = self._above(bare, asked[1:])
            if above is None or above <= 0.0 or (above < self._format_nats and len(asked) > wanted):
                break
        return asked

    def settled_format(self, states: Sequence[EventState]) -> list[EventState]:
        """Count divergence points as format effects at all events that diverge alike, if enough controls bring them.

        Returns:
            The events with such points that have no baseline yet, with these noted.
        """
        told = (
            (state.points[point], entry_id, above >= self._format_nats)
            for state in states
            for point in state.where.diverging()
            for entry_id, above in self._alone_above(state, point)
        )
        settled = shared_format(told, CONTROL_MEMORIES)
        found = {
            state.event_id: frozenset(
                point
                for point in state.where.diverging()
                if point not in state.controls.baseline and place_of(state.points[point]) in settled
            )
            for state in states
        }
        return [
            replace(state, controls=replace(state.controls, format_points=state.controls.format_points | points))
            for state in states
            if (points := found[state.event_id])
        ]

    def _alone_above(self, state: EventState, point: int) -> Iterator[tuple[str, float]]:
        """Each control memory asked at a divergence point, and how far it is above no memory, in nats."""
        bare = _no_memory(state, point)
        for item in self.without(state, point):
            above = self._above(bare, [item])
            if above is not None and item.kept:  # no memory at all is no control memory
                yield item.kept[0], above

    def _above(self, bare: Ablation, shown: Sequence[Ablation]) -> float | None:
        """How far the least of some memories shown alone is above the odds with no memory; None where not known."""
        floor, odds = self._seen.odds(bare), [self._seen.odds(item) for item in shown]
        known = [value for value in odds if value is not None]
        return None if floor is None or not known or len(known) < len(odds) else min(known) - floor

    def span_baseline(self, state: EventState) -> dict[int, float | None] | None:
        """Return what the words of the harm span are like without a cause, if nothing but a cause makes them likely.

        Returns:
            Log-odds by point; None where divergence points must tell.
        """
        if self._is_span_likely_anyway(state):
            return None
        without = {point: self._usual_odds(state, point) for point in state.where.span()}
        odds = [value for value in without.values() if value is not None]
        if len(odds) < len(without) or not odds:
            return None
        return without if math.fsum(map(log_probability, odds)) <= -SPAN_SURPRISAL_NATS else None

    def _is_span_likely_anyway(self, state: EventState) -> bool:
        """Tell whether a memory of any kind makes the harm span likely, whatever control memories not yet asked do."""
        least = 0.0
        for point in state.where.span():
            odds = [self._seen.odds(item) for item in self.without(state, point)]
            least += log_probability(median(-math.inf if value is None else value for value in odds))
        return state.where.span_end > 0 and least > -SPAN_SURPRISAL_NATS

    def _usual_odds(self, state: EventState, point: int) -> float | None:
        """Log-odds without a cause: the control memories' median, or those of no memory where these are higher."""
        asked = [self._seen.odds(item) for item in self.without(state, point)]
        known = [odds for odds in asked if odds is not None]
        floor = self.floor(state, point)
        return None if floor is None or len(known) < len(asked) else max(median(known), floor)

    def read_divergences(self, state: EventState) -> EventState:
        """Set the baselines of the divergence points that count, from whatever was shown alone by now."""
        controls = state.controls
        for point in self._seen.divergences(state):
            asked = self.at_divergence(state, point)
            if self._seen.answers(asked):
                controls = self._with_divergence(state, controls, point, asked)
        return replace(state, controls=controls)

    def _with_divergence(
        self, state: EventState, controls: Controls, point: int, asked: Sequence[Ablation]
    ) -> Controls:
        bare = _no_memory(state, point)
        shown = [item for item in asked if item != bare]
        odds, others = self._seen.odds(bare), [_alone(state, entry_id, point) for entry_id in self.all_of(state)]
        above = self._above(bare, [*shown, *(item for item in others if self._seen.odds(item) is not None)])
        if odds is None or not shown or above is None:
            return controls.with_baseline(point, odds, is_format=None)
        return controls.with_baseline(point, odds + max(above, 0.0), is_format=above >= self._format_nats)

    def slack_nats(self, state: EventState, point: int) -> float:
        """How much lower the baseline at a divergence point may be than is known; 0 where all controls told."""
        bare, floor = _no_memory(state, point), self.floor(state, point)
        asked, shown = self.at_divergence(state, point), self.without(state, point)
        least = state.controls.baseline.get(point)
        if bare in shown or len(asked) > len(shown) or least is None or floor is None:
            return 0.0
        return max(least - floor, 0.0)

    def floor(self, state: EventState, point: int) -> float | None:
        """Log-odds with no memory at a point, which no baseline falls below; None where they are not known."""
        return self._seen.odds(_no_memory(state, point))

    def has_only_retired(self, state: EventState) -> bool:
        """Tell whether an event is asked at retired divergence points, since all later ones are format effects."""
        where = state.where
        later = range(where.span_end + where.retired, len(where.all))
        retired = where.retired > 0 and state.controls.format_points.issuperset(later)
        return retired and bool(self._seen.divergences(state))

    def is_all_format(self, state: EventState) -> bool:
        """Tell whether all points of an event are format effects, and it has no clean replay with a memory yet."""
        return not state.where.reference and not self._seen.measures(state)

    def format_checks(self, state: EventState) -> list[Ablation]:
        """Ask whether all memories do what the controls do, before every point of an event is given up as format."""
        everything = self.all_of(state)
        return [
            item
            for point in sorted(state.controls.format_points)
            for item in (*self._all_at(state, point), *(_alone(state, entry_id, point) for entry_id in everything))
        ]

    def _all_at(self, state: EventState, point: int) -> list[Ablation]:
        """All that can be asked of the event's own control memories at a divergence point."""
        return list(dict.fromkeys([_no_memory(state, point), *self.without(state, point)]))

    def read_format_checks(self, state: EventState) -> EventState:
        """Take in the answers to `format_checks`: a point that one memory does not bring is no format effect."""
        controls = state.controls
        for point in sorted(controls.format_points):
            controls = self._with_divergence(state, controls, point, self._all_at(state, point))
        return replace(state, controls=controls)

    def replays(self, state: EventState) -> list[Ablation]:
        """Replay an event whose points are all format effects with one memory at a time."""
        return [keep_only(state.event_id, "keep_one", "text", (entry_id,)) for entry_id in self.all_of(state)]

    def all_of(self, state: EventState) -> list[str]:
        """Memories that must all bring an effect before it is a format effect: unused ones, drawn ones, the context.

        An attacker may plant what matches a query best and what matches it least. What is drawn follows from query and
        entry ids alone: who chooses ids and knows the query can plan that too, and who does not choose ids cannot.
        """
        event = state.event
        if event.event_id in self._all:  # drawing reads the whole store, and is asked for at every point, every round
            return self._all[event.event_id]
        entries = [
            *self._memory.unused(event.query, CONTROL_MEMORIES, logged=event.retrieved),
            *self._memory.drawn(event.query, CONTROL_MEMORIES, logged=event.retrieved),
            *self._memory.retrieve(event.query, logged=event.retrieved),
        ]
        return self._all.setdefault(event.event_id, list(dict.fromkeys(entry.entry_id for entry in entries)))


def _no_memory(state: EventState, point: int) -> Ablation:
    return keep_only(state.event_id, "no_memory", "odds", (), point)


def _alone(state: EventState, entry_id: str, point: int) -> Ablation:
    return keep_only(state.event_id, "keep_one", "odds", (entry_id,), point)
