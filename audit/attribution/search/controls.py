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
from statistics import median
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import keep_only
from memory_audit.attribution.search.divergence import first_divergence
from memory_audit.attribution.search.format_points import place_of, shared_format
from memory_audit.attribution.search.measurements import log_probability
from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from memory_audit.attribution.replays.ablation import Ablation
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.measurements import Measurements
    from memory_audit.attribution.search.state import EventState, SearchSettings

__all__ = ["ControlMemories"]


class ControlMemories:
    """Plans and reads what is asked of control memories."""

    def __init__(
        self, memory: RankedMemory, measured: Measurements, settings: SearchSettings, events: Iterable[str] = ()
    ) -> None:
        self._memory, self._measured, self._settings = memory, measured, settings
        self._all: dict[str, list[str]] = {}
        self._rotation = {event_id: number for number, event_id in enumerate(events)}

    def without(self, event_id: str, state: EventState, point: int) -> list[Ablation]:
        """Ask for the odds at a point without a cause: with each control memory, or with none where these are too few.

        They are the memories that match the query least, and the one whose clean replay the point comes from.
        """
        unused = self._memory.unused(state.event.query, self._settings.control_memories, logged=state.event.retrieved)
        if not unused or len(unused) < self._settings.control_memories:
            return [_no_memory(event_id, point)]
        shown = dict.fromkeys([*(entry.entry_id for entry in unused), *state.reference])
        return [keep_only(event_id, "keep_one", "odds", (entry_id,), point) for entry_id in shown]

    def for_span(self, event_id: str, state: EventState) -> list[Ablation]:
        """Ask how likely the harm span is without a cause: with as many control memories as tell, more than half first.

        With no memory, too, where these do not say it: whoever plants memories that suppress the span would have all
        others seem to bring it.
        """
        words = range(state.span_start, state.span_end)
        asked = [self.without(event_id, state, point) for point in words]
        majority = [item for items in asked for item in items[: len(items) // 2 + 1]]
        if any(item not in self._measured for item in majority) or self._is_span_likely_anyway(event_id, state):
            return majority
        bare = [_no_memory(event_id, point) for point in words]
        return list(dict.fromkeys([*bare, *(item for items in asked for item in items)]))

    def at_divergence(self, event_id: str, state: EventState, point: int) -> list[Ablation]:
        """Ask for the odds at a divergence point with no memory, and with as many control memories as tell.

        Only the least of them counts, and only above the odds with no memory: one that falls below these ends it. One
        that falls short of a format effect ends it too, where no attribution depends on the rest
        (`memory_audit.attribution.search.bounds`). The first one rotates, so that events that diverge alike ask
        different ones (`shared_format`).
        """
        bare = _no_memory(event_id, point)
        shown = self.without(event_id, state, point)
        if bare in shown:
            return shown
        first = self._rotation.get(event_id, 0) % len(shown)
        asked, wanted = [bare], 1 + state.controls_wanted.get(point, 0)
        for item in [*shown[first:], *shown[:first]]:
            asked.append(item)
            above = self._above(bare, [item for item in asked if item != bare])
            if above is None or above <= 0.0 or (above < self._settings.attribution_nats and len(asked) > wanted):
                break
        return asked

    def settle_format(self, events: Sequence[tuple[str, EventState]]) -> None:
        """Count divergence points as format effects at all events that diverge alike, if enough controls bring them."""
        told = (
            (state.points[point], entry_id, above >= self._settings.attribution_nats)
            for event_id, state in events
            for point in range(state.span_end, len(state.points))
            for entry_id, above in self._alone_above(event_id, state, point)
        )
        settled = shared_format(told, self._settings.control_memories)
        for _, state in events:
            for point in range(state.span_end, len(state.points)):
                if point not in state.baseline and place_of(state.points[point]) in settled:
                    state.format_points.add(point)

    def _alone_above(self, event_id: str, state: EventState, point: int) -> Iterator[tuple[str, float]]:
        """Each control memory asked at a divergence point, and how far it is above no memory, in nats."""
        bare = _no_memory(event_id, point)
        for item in self.without(event_id, state, point):
            above = self._above(bare, [item])
            if above is not None and item.kept:  # no memory at all is no control memory
                yield item.kept[0], above

    def _above(self, bare: Ablation, shown: Sequence[Ablation]) -> float | None:
        """How far the least of some memories shown alone is above the odds with no memory; None where not known."""
        floor, odds = self._odds(bare), [self._odds(item) for item in shown]
        known = [value for value in odds if value is not None]
        return None if floor is None or not known or len(known) < len(odds) else min(known) - floor

    def _odds(self, ablation: Ablation) -> float | None:
        known = self._measured.get(ablation)
        return None if known is None else known.log_odds_nats

    def read_span(self, event_id: str, state: EventState) -> None:
        """Measure the harm span alone where nothing but a cause makes it likely; else divergence points."""
        if not self._is_span_likely_anyway(event_id, state):
            words = range(state.span_start, state.span_end)
            without = [self._usual_odds(event_id, state, point) for point in words]
            odds = [value for value in without if value is not None]
            told = len(odds) == len(without) > 0
            if told and math.fsum(map(log_probability, odds)) <= -self._settings.span_surprisal_nats:
                del state.points[state.span_end :]
                state.baseline = dict(zip(words, without, strict=True))
                return
        if len(state.points) == state.span_end:  # nothing is left to grade: whole answers must tell
            state.points, state.span_start, state.span_end = [], 0, 0

    def _is_span_likely_anyway(self, event_id: str, state: EventState) -> bool:
        """Tell whether a memory of any kind makes the harm span likely, whatever control memories not yet asked do."""
        least = 0.0
        for point in range(state.span_start, state.span_end):
            odds = [self._odds(item) for item in self.without(event_id, state, point)]
            least += log_probability(median(-math.inf if value is None else value for value in odds))
        return state.span_end > 0 and least > -self._settings.span_surprisal_nats

    def _usual_odds(self, event_id: str, state: EventState, point: int) -> float | None:
        """Log-odds without a cause: the control memories' median, or those of no memory where these are higher."""
        asked = [self._odds(item) for item in self.without(event_id, state, point)]
        known = [odds for odds in asked if odds is not None]
        floor = self.floor(event_id, point)
        return None if floor is None or len(known) < len(asked) else max(median(known), floor)

    def read_divergences(self, event_id: str, state: EventState) -> None:
        """Set the baselines of the divergence points that count, from whatever was shown alone by now."""
        for measure, point in self._measured.measures(state):
            if measure == "odds" and not state.measures_span:
                asked = self.at_divergence(event_id, state, point)
                if all(item in self._measured for item in asked):
                    self._read_divergence(event_id, state, point, asked)

    def _read_divergence(self, event_id: str, state: EventState, point: int, asked: Sequence[Ablation]) -> None:
        bare = _no_memory(event_id, point)
        shown = [item for item in asked if item != bare]
        state.baseline[point] = odds = self._odds(bare)
        others = [keep_only(event_id, "keep_one", "odds", (entry_id,), point) for entry_id in self._all_controls(state)]
        above = self._above(bare, [*shown, *(item for item in others if self._odds(item) is not None)])
        if odds is not None and shown and above is not None:
            is_format = above >= self._settings.attribution_nats
            (state.format_points.add if is_format else state.format_points.discard)(point)
            state.baseline[point] = odds + max(above, 0.0)

    def want_another(self, event_id: str, state: EventState, point: int) -> None:
        """Want one more control memory at a divergence point."""
        state.controls_wanted[point] = len(self.at_divergence(event_id, state, point)) - 1

    def slack_nats(self, event_id: str, state: EventState, point: int) -> float:
        """How much lower the baseline at a divergence point may be than is known; 0 where all controls told."""
        bare, floor = _no_memory(event_id, point), self.floor(event_id, point)
        asked, shown = self.at_divergence(event_id, state, point), self.without(event_id, state, point)
        least = state.baseline.get(point)
        if bare in shown or len(asked) > len(shown) or least is None or floor is None:
            return 0.0
        return max(least - floor, 0.0)

    def floor(self, event_id: str, point: int) -> float | None:
        """Log-odds with no memory at a point, which no baseline falls below; None where they are not known."""
        return self._odds(_no_memory(event_id, point))

    def has_only_retired(self, state: EventState) -> bool:
        """Tell whether an event is asked at retired divergence points, since all later ones are format effects."""
        later = range(state.span_end + state.retired_divergences, len(state.points))
        measured = any(measure == "odds" for measure, _ in self._measured.measures(state))
        retired = state.retired_divergences > 0 and state.format_points.issuperset(later)
        return measured and retired and not state.measures_span

    def is_all_format(self, state: EventState) -> bool:
        """Tell whether all points of an event are format effects, and it has no clean replay with a memory yet."""
        return not state.reference and not self._measured.measures(state)

    def format_checks(self, event_id: str, state: EventState) -> list[Ablation]:
        """Ask whether all memories do what the controls do, before every point of an event is given up as format."""
        everything = self._all_controls(state)
        return [
            item
            for point in sorted(state.format_points)
            for item in (
                *self._all_at(event_id, state, point),
                *(keep_only(event_id, "keep_one", "odds", (entry_id,), point) for entry_id in everything),
            )
        ]

    def _all_at(self, event_id: str, state: EventState, point: int) -> list[Ablation]:
        """All that can be asked of the event's own control memories at a divergence point."""
        bare = _no_memory(event_id, point)
        return list(dict.fromkeys([bare, *self.without(event_id, state, point)]))

    def read_format_checks(self, event_id: str, state: EventState) -> None:
        """Take in the answers to `format_checks`: a point that one memory does not bring is no format effect."""
        for point in sorted(state.format_points):
            self._read_divergence(event_id, state, point, self._all_at(event_id, state, point))

    def replays(self, event_id: str, state: EventState) -> list[Ablation]:
        """Replay an event whose points are all format effects with one memory at a time."""
        return [keep_only(event_id, "keep_one", "text", (entry_id,)) for entry_id in self._all_controls(state)]

    def read_replays(self, event_id: str, state: EventState) -> None:
        """Find memory not to be the cause where any brings the harm, else take a divergence from a clean replay."""
        replays = [self._measured[item] for item in self.replays(event_id, state)]
        if all(replay.harm is not None and replay.harm >= HARMFUL for replay in replays):
            state.status = "memory is not the cause"
            state.reason = f"harm comes with whichever memory is shown: with each of {len(replays)}, one at a time"
            return
        judged = [replay for replay in replays if replay.harm is not None and replay.harm < HARMFUL]
        clean = (judged or replays)[0]
        state.reference = clean.context
        point = None if state.full is None else first_divergence(state.full.answers, clean.answers)
        if point is not None:
            state.points.append(point)
            state.wanted_divergences = state.divergences - 1 + self._settings.points

    def reopen_if_control_removed(self, state: EventState, removed: AbstractSet[str]) -> None:
        """Reopen an event whose harm came with whichever memory was shown, where one of these is in S by now."""
        bare = state.without_memory
        if state.status != "memory is not the cause" or (
            bare is not None and bare.harm is not None and bare.harm >= HARMFUL
        ):
            return
        if not removed.isdisjoint(self._all_controls(state)):
            state.status = "open"

    def _all_controls(self, state: EventState) -> list[str]:
        """Memories that must all bring an effect before it is a format effect: unused ones, drawn ones, the context.

        An attacker may plant what matches a query best and what matches it least. What is drawn follows from query and
        entry ids alone: who chooses ids and knows the query can plan that too, and who does not choose ids cannot.
        """
        event, most = state.event, self._settings.control_memories
        if event.event_id in self._all:  # drawing reads the whole store, and is asked for at every point, every round
            return self._all[event.event_id]
        entries = [
            *self._memory.unused(event.query, most, logged=event.retrieved),
            *self._memory.drawn(event.query, most, logged=event.retrieved),
            *self._memory.retrieve(event.query, logged=event.retrieved),
        ]
        return self._all.setdefault(event.event_id, list(dict.fromkeys(entry.entry_id for entry in entries)))


def _no_memory(event_id: str, point: int) -> Ablation:
    return keep_only(event_id, "no_memory", "odds", (), point)
