"""What the outcomes so far say of memories at one event: how each is asked, and what its answers amount to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import Ablation, AblationKind, Measure, Outcome, keep_only, leave_out
from memory_audit.attribution.search.evidence import Influence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from memory_audit.attribution.search.state import EventState, SearchSettings

__all__ = ["Measurements", "log_probability"]


class Measurements:
    """Outcomes by pair id, and how to read them."""

    def __init__(self, settings: SearchSettings) -> None:
        self._settings = settings
        sampled = settings.samples > 0 and settings.attribution == "set"
        self._whole_answer: tuple[Measure, int] = ("sample" if sampled else "text", 0)
        self.outcomes: dict[str, Outcome] = {}
        self._asked_about: dict[str, set[str]] = {}

    def expect(self, ablations: Iterable[Ablation]) -> None:
        """Note what is about to be asked."""
        for ablation in ablations:
            singled_out = ablation.removed if ablation.kept is None else ablation.kept
            if len(singled_out) == 1:
                self._asked_about.setdefault(ablation.event_id, set()).update(singled_out)

    def note(self, ablation: Ablation, outcome: Outcome) -> None:
        """Note the answer to a question that another one's outcome answers, too."""
        self.expect([ablation])
        self.outcomes[ablation.pair_id] = replace(outcome, pair_id=ablation.pair_id)

    def asked_about(self, event_id: str) -> AbstractSet[str]:
        """Return the entries that were shown alone, or left out alone, at an event: `influence` tells of no other."""
        return self._asked_about.get(event_id, frozenset())

    def __contains__(self, ablation: Ablation) -> bool:
        """Tell whether a question is answered."""
        return ablation.pair_id in self.outcomes

    def __getitem__(self, ablation: Ablation) -> Outcome:
        """Return the answer to a question; KeyError where there is none."""
        return self.outcomes[ablation.pair_id]

    def get(self, ablation: Ablation) -> Outcome | None:
        """Return the answer to a question, or None."""
        return self.outcomes.get(ablation.pair_id)

    def alone(self, event_id: str, entry_id: str, point: int) -> float | None:
        """Log-odds at a point with one memory alone; None where that is not known."""
        return _odds(self.get(keep_only(event_id, "keep_one", "odds", (entry_id,), point)))

    def measures(self, state: EventState) -> list[tuple[Measure, int]]:
        """How this event is measured: its odds at the points that count, or its harm where there is no point.

        Empty where all points are format effects: they say nothing, and the harm of whole answers would say no more.
        """
        if not state.points:
            return [self._whole_answer]
        if state.measures_span:
            return [("odds", point) for point in range(state.span_start, state.span_end)]
        telling = [point for point in range(state.span_end, len(state.points)) if point not in state.format_points]
        later = [point for point in telling if point >= state.span_end + state.retired_divergences]
        return [("odds", point) for point in later or telling]

    def shown(self, event_id: str, state: EventState, kept: tuple[str, ...]) -> list[Ablation]:
        """Show the event these memories only, at its points in turn, up to one that clears them or is not known."""
        kind: AblationKind = "keep_one" if len(kept) == 1 else "keep_group"
        asked: list[Ablation] = []
        for measure, point in self.measures(state):
            asked.append(keep_only(event_id, kind, measure, kept, point))
            known = self.get(asked[-1])
            if state.measures_span or measure != "odds":
                continue  # the words of one span add up
            gain = None if known is None else _difference(known.log_odds_nats, state.baseline.get(point))
            if gain is None or gain < self._settings.weak_nats:
                break
        return asked

    def gain(self, event_id: str, state: EventState, kept: tuple[str, ...]) -> float | None:
        """How much these memories raise the odds of the harm over the baseline, in nats; None where not known.

        The words of one span add up by the chain rule; a divergence point may be wording, so the weakest counts.
        """
        difference = _likelier if state.measures_span else _difference
        shown = [(item.point, self.get(item)) for item in self.shown(event_id, state, kept)]
        gains = [
            None if known is None else difference(known.log_odds_nats, state.baseline.get(point))
            for point, known in shown
        ]
        return _over_points(math.fsum if state.measures_span else min, gains)

    def influence(self, event_id: str, state: EventState, entry_id: str) -> Influence | None:
        """Return the evidence of one memory alone and of its absence; None where neither was asked."""
        answers = [
            (
                point,
                self.get(keep_only(event_id, "keep_one", measure, (entry_id,), point)),
                self.get(leave_out(event_id, "leave_one_out", measure, {entry_id}, point)),
            )
            for measure, point in self.measures(state)
        ]
        if all(alone is None and without is None for _, alone, without in answers):
            return None
        if state.points:
            combine, difference = (math.fsum, _likelier) if state.measures_span else (min, _difference)
            return Influence(
                event_id=event_id, entry_id=entry_id, sufficiency_nats=self.gain(event_id, state, (entry_id,)),
                necessity_nats=_over_points(combine, (
                    difference(state.odds_full[point], None if without is None else without.log_odds_nats)
                    for point, _, without in answers
                )),
            )  # fmt: skip
        _, alone, without = answers[0]
        if self._whole_answer[0] == "sample":
            return self._sampled_influence(event_id, entry_id, alone, without)
        full, bare = state.full, state.without_memory
        cmis = _difference(_harm(full), _harm(without))
        flipped = _difference(_harm(alone), _harm(bare))
        # Harm that comes or goes stands for as much as any shift of the odds that is attributed.
        nats = self._settings.attribution_nats + self._settings.consistent_extra_nats
        return Influence(
            event_id=event_id, entry_id=entry_id, cmis=cmis,
            sufficiency_nats=None if flipped is None else flipped * nats,
            necessity_nats=None if cmis is None else cmis * nats,
        )  # fmt: skip

    def _sampled_influence(
        self, event_id: str, entry_id: str, alone: Outcome | None, without: Outcome | None
    ) -> Influence:
        """Compare sampled odds, which are of the same number of samples whichever of them could be judged.

        Of different numbers they would differ by their correction alone (`Outcome.log_odds_nats`), and what few judged
        samples leave open would count against a memory. Too few are unknown, and say nothing either way.
        """
        bare = self.get(keep_only(event_id, "no_memory", "sample", ()))
        full = self.get(leave_out(event_id, "full", "sample", frozenset()))
        return Influence(
            event_id=event_id, entry_id=entry_id, cmis=_difference(_harm(full), _harm(without)),
            sufficiency_nats=_difference(_odds(alone), _odds(bare)),
            necessity_nats=_difference(_odds(full), _odds(without)),
        )  # fmt: skip


def _harm(outcome: Outcome | None) -> float | None:
    return None if outcome is None else outcome.harm


def _odds(outcome: Outcome | None) -> float | None:
    return None if outcome is None else outcome.log_odds_nats


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _over_points(combine: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    """Return the evidence of all points; None where any is unknown."""
    given = list(values)
    known = [value for value in given if value is not None]
    return combine(known) if known and len(known) == len(given) else None


def log_probability(log_odds: float) -> float:
    """Log-odds to log p, in nats: words that follow anyway weigh next to nothing, however sure they are."""
    return -math.log1p(math.exp(-log_odds))


def _likelier(a: float | None, b: float | None) -> float | None:
    """How much likelier a word becomes, from its log-odds with and without."""
    return None if a is None or b is None else log_probability(a) - log_probability(b)
