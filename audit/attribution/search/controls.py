"""Placebos: what would any memory do? The baseline against which a memory's effect counts.

A memory of any kind may bring a form that the model does not use by itself ("Thought:", "Answer:"), and a form is no
harm. So memories that an event did not use are shown alone at its points, and what they do is no memory's fault; nor is
what comes with no memory at all, which no planted placebo can lower. The *median* of them counts at the words of the
harm, and the *least* at partings, so that poison among them raises the baseline only where all are poison; there they
are asked one after the other, as far as form or a conviction hangs on the next (`doubts`). And before every point of an
event is given up as form, others are asked that are harder to plant: ones drawn from the store, and the context's own.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import keep_only
from memory_audit.attribution.search.divergence import decision_point
from memory_audit.attribution.search.format_points import place_of, shared_form
from memory_audit.attribution.search.measurements import log_probability
from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from memory_audit.attribution.replays.ablation import Ablation
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.measurements import Measurements
    from memory_audit.attribution.search.state import EventState, SearchSettings

__all__ = ["Placebos"]


class Placebos:
    """Plans and reads what is asked of placebos."""

    def __init__(
        self, memory: RankedMemory, measured: Measurements, settings: SearchSettings, events: Iterable[str] = ()
    ) -> None:
        self._memory, self._measured, self._settings = memory, measured, settings
        self._alone: dict[str, list[str]] = {}
        self._turns = {event_id: number for number, event_id in enumerate(events)}

    def without(self, event_id: str, state: EventState, point: int) -> list[Ablation]:
        """Ask how a point fares without a cause: with each placebo, else, where there are too few, with no memory.

        Placebos are the memories that match the query least, and the one whose clean replay the point comes from.
        """
        unused = self._memory.unused(state.event.query, self._settings.placebos, logged=state.event.retrieved)
        if not unused or len(unused) < self._settings.placebos:
            return [_gate(event_id, point)]
        shown = dict.fromkeys([*(entry.entry_id for entry in unused), *state.reference])
        return [keep_only(event_id, "keep_one", "odds", (entry_id,), point) for entry_id in shown]

    def for_words(self, event_id: str, state: EventState) -> list[Ablation]:
        """Ask how the words of the harm fare without a cause: with as many placebos as tell, more than half first.

        With no memory, too, where these do not say them: whoever plants placebos that suppress the words would have
        all others seem to bring them.
        """
        words = range(state.past, state.spoken)
        asked = [self.without(event_id, state, point) for point in words]
        majority = [item for items in asked for item in items[: len(items) // 2 + 1]]
        if any(item not in self._measured for item in majority) or self._said_anyway(event_id, state):
            return majority
        gates = [_gate(event_id, point) for point in words]
        return list(dict.fromkeys([*gates, *(item for items in asked for item in items)]))

    def at_parting(self, event_id: str, state: EventState, point: int) -> list[Ablation]:
        """Ask how a parting fares with no memory, and with as many placebos, one after the other, as tell.

        Only the least of them counts, and only above the odds with no memory: whoever falls below these ends it. One
        that falls short of a form ends it too, where no verdict hangs on the rest
        (`memory_audit.attribution.search.bounds`). Who is first goes by turns, so that events that part alike ask
        different ones (`shared_form`).
        """
        gate = _gate(event_id, point)
        shown = self.without(event_id, state, point)
        if gate in shown:
            return shown
        turn = self._turns.get(event_id, 0) % len(shown)
        asked, wanted = [gate], 1 + state.doubts.get(point, 0)
        for item in [*shown[turn:], *shown[:turn]]:
            asked.append(item)
            above = self._above(gate, [item for item in asked if item != gate])
            if above is None or above <= 0.0 or (above < self._settings.culprit_nats and len(asked) > wanted):
                break
        return asked

    def settle_form(self, events: Sequence[tuple[str, EventState]]) -> None:
        """Count partings as form, at all events that part alike, that as many placebos bring as one event would ask."""
        told = (
            (state.points[point], entry_id, above >= self._settings.culprit_nats)
            for event_id, state in events
            for point in range(state.spoken, len(state.points))
            for entry_id, above in self._alone_above(event_id, state, point)
        )
        settled = shared_form(told, self._settings.placebos)
        for _, state in events:
            for point in range(state.spoken, len(state.points)):
                if point not in state.baseline and place_of(state.points[point]) in settled:
                    state.form.add(point)

    def _alone_above(self, event_id: str, state: EventState, point: int) -> Iterator[tuple[str, float]]:
        """Each placebo asked at a parting, and how far it is above the odds with no memory."""
        gate = _gate(event_id, point)
        for item in self.without(event_id, state, point):
            above = self._above(gate, [item])
            if above is not None and item.kept:  # no memory at all is no placebo
                yield item.kept[0], above

    def _above(self, gate: Ablation, shown: Sequence[Ablation]) -> float | None:
        """How far the least of some memories shown alone is above the odds with no memory; None where not known."""
        floor, odds = self._odds(gate), [self._odds(item) for item in shown]
        known = [value for value in odds if value is not None]
        return None if floor is None or not known or len(known) < len(odds) else min(known) - floor

    def _odds(self, ablation: Ablation) -> float | None:
        known = self._measured.get(ablation)
        return None if known is None else known.log_odds_nats

    def read_substance(self, event_id: str, state: EventState) -> None:
        """Keep the words of the harm alone where neither the gate nor a placebo would say them; else count partings."""
        if not self._said_anyway(event_id, state):
            words = range(state.past, state.spoken)
            without = [self._usual_odds(event_id, state, point) for point in words]
            odds = [value for value in without if value is not None]
            told = len(odds) == len(without) > 0
            if told and math.fsum(map(log_probability, odds)) <= -self._settings.substance_nats:
                del state.points[state.spoken :]
                state.baseline = dict(zip(words, without, strict=True))
                return
        if len(state.points) == state.spoken:
            state.points, state.spoken, state.past = [], 0, 0  # nothing is left to grade: whole answers must tell

    def _said_anyway(self, event_id: str, state: EventState) -> bool:
        """Tell whether a memory of any kind has the words of the harm said, whatever placebos not yet asked do."""
        least = 0.0
        for point in range(state.past, state.spoken):
            odds = [self._odds(item) for item in self.without(event_id, state, point)]
            least += log_probability(median(-math.inf if value is None else value for value in odds))
        return state.spoken > 0 and least > -self._settings.substance_nats

    def _usual_odds(self, event_id: str, state: EventState, point: int) -> float | None:
        """Log-odds without a cause: the placebos' median, or those of no memory where these are higher."""
        asked = [self._odds(item) for item in self.without(event_id, state, point)]
        known = [odds for odds in asked if odds is not None]
        floor = self.floor(event_id, point)
        return None if floor is None or len(known) < len(asked) else max(median(known), floor)

    def read_partings(self, event_id: str, state: EventState) -> None:
        """Set the baselines of the partings that count, from whatever was shown alone by now."""
        for measure, point in self._measured.measures(state):
            if measure == "odds" and not state.speaks:
                asked = self.at_parting(event_id, state, point)
                if all(item in self._measured for item in asked):
                    self._read_parting(event_id, state, point, asked)

    def _read_parting(self, event_id: str, state: EventState, point: int, asked: Sequence[Ablation]) -> None:
        gate = _gate(event_id, point)
        shown = [item for item in asked if item != gate]
        state.baseline[point] = odds = self._odds(gate)
        others = [keep_only(event_id, "keep_one", "odds", (entry_id,), point) for entry_id in self._shown_alone(state)]
        above = self._above(gate, [*shown, *(item for item in others if self._odds(item) is not None)])
        if odds is not None and shown and above is not None:
            (state.form.add if above >= self._settings.culprit_nats else state.form.discard)(point)
            state.baseline[point] = odds + max(above, 0.0)

    def doubt(self, event_id: str, state: EventState, point: int) -> None:
        """Want one more placebo at a parting."""
        state.doubts[point] = len(self.at_parting(event_id, state, point)) - 1

    def margin(self, event_id: str, state: EventState, point: int) -> float:
        """How much lower a parting's baseline may be than is known by now, in nats; 0 where all placebos told."""
        gate, floor = _gate(event_id, point), self.floor(event_id, point)
        asked, shown = self.at_parting(event_id, state, point), self.without(event_id, state, point)
        least = state.baseline.get(point)
        if gate in shown or len(asked) > len(shown) or least is None or floor is None:
            return 0.0
        return max(least - floor, 0.0)

    def floor(self, event_id: str, point: int) -> float | None:
        """Log-odds with no memory at a point, which no baseline falls below; None where they are not known."""
        return self._odds(_gate(event_id, point))

    def is_worn(self, state: EventState) -> bool:
        """Tell whether an event is asked at partings taken for style, since all after these are form."""
        later = range(state.spoken + state.style, len(state.points))
        measured = any(measure == "odds" for measure, _ in self._measured.measures(state))
        return measured and state.style > 0 and not state.speaks and state.form.issuperset(later)

    def formless(self, state: EventState) -> bool:
        """Tell whether all points of an event are form, and no clean replay with a memory was taken for it yet."""
        return not state.reference and not self._measured.measures(state)

    def doubting_form(self, event_id: str, state: EventState) -> list[Ablation]:
        """Ask whether all memories do what the placebos do, before every point of an event is given up as form."""
        return [
            item
            for point in sorted(state.form)
            for item in (
                *self._everything(event_id, state, point),
                *(keep_only(event_id, "keep_one", "odds", (entry_id,), point) for entry_id in self._shown_alone(state)),
            )
        ]

    def _everything(self, event_id: str, state: EventState, point: int) -> list[Ablation]:
        """All that can be asked of placebos at a parting."""
        gate = _gate(event_id, point)
        return list(dict.fromkeys([gate, *self.without(event_id, state, point)]))

    def read_doubt(self, event_id: str, state: EventState) -> None:
        """Take in the answers to `doubting_form`: a point is no form any more where one memory does not bring it."""
        for point in sorted(state.form):
            self._read_parting(event_id, state, point, self._everything(event_id, state, point))

    def replays(self, event_id: str, state: EventState) -> list[Ablation]:
        """Replay an event whose points are all form with one memory at a time."""
        return [keep_only(event_id, "keep_one", "text", (entry_id,)) for entry_id in self._shown_alone(state)]

    def read_replays(self, event_id: str, state: EventState) -> None:
        """Exonerate memory where whichever is shown brings the harm, else take a parting from a clean replay."""
        replays = [self._measured[item] for item in self.replays(event_id, state)]
        if all(replay.harm is not None and replay.harm >= HARMFUL for replay in replays):
            state.status = "memory is not the cause"
            state.reason = f"harm comes with whichever memory is shown: with each of {len(replays)}, one at a time"
            return
        judged = [replay for replay in replays if replay.harm is not None and replay.harm < HARMFUL]
        clean = (judged or replays)[0]
        state.reference = clean.context
        point = None if state.full is None else decision_point(state.full.answers, clean.answers)
        if point is not None:
            state.points.append(point)
            state.depth = state.partings - 1 + self._settings.points

    def doubt_exoneration(self, state: EventState, removed: AbstractSet[str]) -> None:
        """Reopen an event whose harm came with whichever memory was shown, where one of these turns out a culprit."""
        gate = state.gate is not None and state.gate.harm is not None and state.gate.harm >= HARMFUL
        if state.status == "memory is not the cause" and not gate and not removed.isdisjoint(self._shown_alone(state)):
            state.status = "open"

    def _shown_alone(self, state: EventState) -> list[str]:
        """Memories that must all bring the harm before it counts as anybody's: placebos, drawn ones, the context.

        An attacker may plant what matches a query best and what matches it least. What is drawn follows from query and
        entry ids alone: who chooses ids and knows the query can plan that too, and who does not choose ids cannot.
        """
        event, most = state.event, self._settings.placebos
        if event.event_id in self._alone:  # drawing reads the whole store, and is asked for at every point, every round
            return self._alone[event.event_id]
        entries = [
            *self._memory.unused(event.query, most, logged=event.retrieved),
            *self._memory.drawn(event.query, most, logged=event.retrieved),
            *self._memory.retrieve(event.query, logged=event.retrieved),
        ]
        return self._alone.setdefault(event.event_id, list(dict.fromkeys(entry.entry_id for entry in entries)))


def _gate(event_id: str, point: int) -> Ablation:
    return keep_only(event_id, "gate", "odds", (), point)
