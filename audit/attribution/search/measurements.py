"""What was seen: outcomes by question, and what they amount to at one event. Outcomes only come in; nothing decides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memory_audit.attribution.evidence import Influence, difference, harm_of, share_of
from memory_audit.attribution.replays.ablation import (
    Ablation,
    AblationKind,
    Measure,
    Outcome,
    keep_only,
    leave_out,
    topic_alone,
)
from memory_audit.attribution.search.settings import WEAK_NATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.settings import SearchSettings

__all__ = ["Measurements", "log_probability"]


class Measurements:
    """Outcomes, and how to read them."""

    def __init__(self, settings: SearchSettings) -> None:
        self._flip_nats = settings.attribution_nats + settings.consistent_extra_nats
        """Harm that comes or goes stands for as much as any shift of the odds that is attributed."""

        self._whole_answer: tuple[Measure, int] = ("sample" if settings.samples > 0 else "text", 0)
        self._outcomes: dict[object, Outcome] = {}
        """By content of the question: asked for far more often than its name is worth making."""

        self._asked_about: dict[str, set[str]] = {}
        self.examined: set[str] = set()
        """Entries that were shown alone, or in a group, at any event."""

    def expect(self, ablations: Iterable[Ablation]) -> None:
        """Note what is about to be asked."""
        for ablation in ablations:
            singled_out = ablation.removed if ablation.kept is None else ablation.kept
            if len(singled_out) == 1:
                self._asked_about.setdefault(ablation.event_id, set()).update(singled_out)
            self.examined.update(ablation.kept or ())

    def note(self, ablation: Ablation, outcome: Outcome) -> None:
        """Note the answer to a question: its own, or that of another one which answers it, too."""
        self.expect([ablation])
        self._outcomes[ablation.content] = outcome

    def asked_about(self, event_id: str) -> AbstractSet[str]:
        """Return the entries that were shown alone, or left out alone, at an event: `influence` tells of no other."""
        return self._asked_about.get(event_id, frozenset())

    def __contains__(self, ablation: Ablation) -> bool:
        """Tell whether a question is answered."""
        return ablation.content in self._outcomes

    def __getitem__(self, ablation: Ablation) -> Outcome:
        """Return the answer to a question; KeyError where there is none."""
        return self._outcomes[ablation.content]

    def get(self, ablation: Ablation) -> Outcome | None:
        """Return the answer to a question, or None."""
        return self._outcomes.get(ablation.content)

    def answers(self, ablations: Iterable[Ablation]) -> bool:
        """Tell whether all questions are answered."""
        return all(ablation in self for ablation in ablations)

    def odds(self, ablation: Ablation) -> float | None:
        """Return the log-odds that answer a question; None where it has no answer, or one without odds."""
        known = self.get(ablation)
        return None if known is None else known.log_odds_nats

    def alone(self, state: EventState, entry_id: str, point: int) -> float | None:
        """Log-odds at a point with one memory alone; None where that is not known."""
        return self.odds(keep_only(state.event_id, "keep_one", "odds", (entry_id,), point))

    def measures(self, state: EventState) -> list[tuple[Measure, int]]:
        """How this event is measured: its odds at the points that count, or its harm where there is no point.

        Empty where all points are format effects: they say nothing, and the harm of whole answers would say no more.
        """
        where = state.where
        if not where.all:
            return [self._whole_answer]
        if where.measures_span:
            return [("odds", point) for point in where.span()]
        telling = [point for point in where.diverging() if point not in state.controls.format_points]
        later = [point for point in telling if point >= where.span_end + where.retired]
        return [("odds", point) for point in later or telling]

    def divergences(self, state: EventState) -> list[int]:
        """Return the divergence points that count, where the event is measured at such."""
        if state.where.measures_span:
            return []
        return [point for measure, point in self.measures(state) if measure == "odds"]

    def shown(self, state: EventState, kept: tuple[str, ...]) -> list[Ablation]:
        """Show the event these memories only, at its points in turn, up to one that clears them or is not known."""
        kind: AblationKind = "keep_one" if len(kept) == 1 else "keep_group"
        asked: list[Ablation] = []
        for measure, point in self.measures(state):
            asked.append(keep_only(state.event_id, kind, measure, kept, point))
            if state.where.measures_span or measure != "odds":
                continue  # the words of one span add up
            gain = difference(self.odds(asked[-1]), self.baseline(state, point))
            if gain is None or gain < WEAK_NATS:
                break
        return asked

    def baseline(self, state: EventState, point: int) -> float | None:
        """Log-odds without a cause: what control memories bring or, where that was asked, the topic by itself."""
        known, topic = state.controls.baseline.get(point), self.odds(topic_alone(state.event_id, point))
        return known if known is None or topic is None else max(known, topic)

    def gain(self, state: EventState, kept: tuple[str, ...]) -> float | None:
        """How much these memories raise the odds of the harm over the baseline, in nats; None where not known.

        The words of one span add up by the chain rule; a divergence point may be wording, so the weakest counts.
        """
        rise = _rise(state)
        return _over_points(
            state, [rise(self.odds(item), self.baseline(state, item.point)) for item in self.shown(state, kept)]
        )

    def influence(self, state: EventState, entry_id: str) -> Influence | None:
        """Return the evidence of one memory alone and of its absence; None where neither was asked."""
        event_id = state.event_id
        answers = [
            (
                leave_out(event_id, "full", measure, frozenset(), point),
                self.get(keep_only(event_id, "keep_one", measure, (entry_id,), point)),
                self.get(leave_out(event_id, "leave_one_out", measure, {entry_id}, point)),
            )
            for measure, point in self.measures(state)
        ]
        if all(alone is None and without is None for _, alone, without in answers):
            return None
        if state.points:
            return self._graded(state, entry_id, answers)
        full, alone, without = answers[0]
        if full.measure == "sample":
            # Sampled odds are of the same number of samples whichever of them could be judged: of different numbers
            # they would differ by their correction alone (`Outcome.log_odds_nats`).
            bare = self.odds(keep_only(event_id, "no_memory", "sample", ()))
            raised, lost = difference(_odds(alone), bare), difference(self.odds(full), _odds(without))
            return Influence(
                event_id=event_id, entry_id=entry_id, cmis=difference(harm_of(self.get(full)), harm_of(without)),
                sufficiency_nats=raised, sufficiency_share=share_of(raised, difference(0.0, bare)),
                necessity_nats=lost, necessity_share=share_of(lost, difference(self.odds(full), bare)),
            )  # fmt: skip
        cmis = difference(harm_of(state.full), harm_of(without))
        flipped = difference(harm_of(alone), harm_of(state.replays.without_memory))
        return Influence(
            event_id=event_id, entry_id=entry_id, cmis=cmis,
            sufficiency_nats=None if flipped is None else flipped * self._flip_nats, sufficiency_share=flipped,
            necessity_nats=None if cmis is None else cmis * self._flip_nats, necessity_share=cmis,
        )  # fmt: skip

    def _graded(
        self, state: EventState, entry_id: str, answers: Sequence[tuple[Ablation, Outcome | None, Outcome | None]]
    ) -> Influence:
        """Return the evidence at measurement points: with all memories, with one alone, and without it, at each."""
        rise = _rise(state)
        lost = _over_points(state, [rise(self.odds(full), _odds(without)) for full, _, without in answers])
        raised, way = self.gain(state, (entry_id,)), self._way(state)
        return Influence(
            event_id=state.event_id, entry_id=entry_id,
            sufficiency_nats=raised, sufficiency_share=share_of(raised, way),
            necessity_nats=lost, necessity_share=share_of(lost, way),
        )  # fmt: skip

    def _way(self, state: EventState) -> float | None:
        """How far the harm span is from even odds without a cause, in nats, over the words that do not follow anyway.

        It is 0 at divergence points: from there to the harm it is a long way, and memories go it together.
        """
        if not state.where.measures_span:
            return 0.0
        ways = [_likelier(0.0, self.baseline(state, point)) for point in state.where.span()]
        return _over_points(state, [None if way is None else max(way, 0.0) for way in ways])


def log_probability(log_odds: float) -> float:
    """Log-odds to log p, in nats: words that follow anyway weigh next to nothing, however sure they are."""
    return -math.log1p(math.exp(-log_odds))


def _odds(outcome: Outcome | None) -> float | None:
    return None if outcome is None else outcome.log_odds_nats


def _rise(state: EventState) -> Callable[[float | None, float | None], float | None]:
    """Return how the evidence at one point is read from the log-odds with and without."""
    return _likelier if state.where.measures_span else difference


def _likelier(a: float | None, b: float | None) -> float | None:
    """How much likelier a word becomes, from its log-odds with and without."""
    return None if a is None or b is None else log_probability(a) - log_probability(b)


def _over_points(state: EventState, values: Sequence[float | None]) -> float | None:
    """Return the evidence of all points; None where any is unknown."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return math.fsum(known) if state.where.measures_span else min(known)
