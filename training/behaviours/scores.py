"""What a reader says of texts that it was not fitted on, and the curve and thresholds that follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.guard.blocks.behaviour import BehaviourCurve
from training.behaviours.corpus import EACH, RESTATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.models.activations.behaviour_reader import ReaderWeights
    from training.behaviours.corpus import Scenario

__all__ = ["FLAT", "STRANGERS", "Scores", "fitted_curve", "scores_of", "spread", "threshold_of"]

STRANGERS = 10
"""Behaviours of other scenarios that a text is compared with: as many as the tombstones of the block list benchmark."""

FLAT = BehaviourCurve(restated_slope=1.0, harm_slope=0.0, bias=0.0, threshold_nats=0.0)
"""Of a reader whose curve is not fitted yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What the networks say, in nats: of scenarios' restatements and safe answers, and of notes."""

    curve: BehaviourCurve
    compared: NDArray[np.float64]
    """A text with its scenario's behaviour, shape (scenarios, restatements and safe answers); NaN where it is
    missing."""

    compared_elsewhere: NDArray[np.float64]
    """The largest over STRANGERS behaviours of other scenarios, same shape."""

    harm: NDArray[np.float64]
    """Same shape."""

    notes_compared: NDArray[np.float64]
    """The largest over STRANGERS behaviours, shape (notes,)."""

    notes_harm: NDArray[np.float64]
    """Same shape."""

    @property
    def own(self) -> NDArray[np.float64]:
        """Log-odds that a text restates its scenario's behaviour."""
        return self._odds(self.compared, self.harm)

    @property
    def elsewhere(self) -> NDArray[np.float64]:
        """Log-odds that it restates one of STRANGERS behaviours of other scenarios."""
        return self._odds(self.compared_elsewhere, self.harm)

    @property
    def notes(self) -> NDArray[np.float64]:
        """Log-odds that a note restates one of STRANGERS behaviours."""
        return self._odds(self.notes_compared, self.notes_harm)

    def chosen(self, mine: NDArray[np.bool_]) -> Scores:
        """Return those of some scenarios."""
        parts = ("compared", "compared_elsewhere", "harm")
        return replace(self, **{name: getattr(self, name)[mine] for name in parts})

    def _odds(self, compared: NDArray[np.float64], harm: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.curve.restated_slope * compared + self.curve.harm_slope * harm + self.curve.bias


def scores_of(
    weights: ReaderWeights,
    found: Sequence[Scenario],
    states: Sequence[Sequence[NDArray[np.float32]]],
    noted: Sequence[NDArray[np.float32]] = (),
) -> Scores:
    """Read scenarios and notes with a reader that was not fitted on them, by its own curve.

    Args:
        weights: The reader.
        found: The scenarios.
        states: Of each scenario's texts, `passage_means` each.
        noted: Notes, likewise.
    """
    keys = np.stack([weights.reading(texts[0]).direction for texts in states])
    compared, elsewhere, harm = (np.full((len(found), EACH - 1), np.nan) for _ in range(3))
    for number, scenario in enumerate(found):
        behaviours = np.concatenate([keys[number][None], spread(np.roll(keys, -1 - number, axis=0)[:-1])])
        for place in scenario.writes:
            reading = weights.reading(states[number][place])
            own, *others = weights.comparing.log_odds(reading.passages, behaviours)
            where = number, place - 1
            compared[where], harm[where] = own, reading.harm_nats
            elsewhere[where] = max(others, default=np.nan)
    readings = [weights.reading(text) for text in noted]
    behaviours = spread(keys)
    return Scores(
        curve=weights.curve,
        compared=compared,
        compared_elsewhere=elsewhere,
        harm=harm,
        notes_compared=np.array(
            [weights.comparing.log_odds(one.passages, behaviours).max() for one in readings], np.float64
        ),
        notes_harm=np.array([one.harm_nats for one in readings], np.float64),
    )


def fitted_curve(scores: Scores) -> BehaviourCurve:
    """Return the curve that tells restatements from safe answers by what the networks say; without thresholds."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    there = np.isfinite(scores.compared)
    restated = np.broadcast_to(np.arange(EACH - 1) < RESTATED, there.shape)[there]
    line = LogisticRegression().fit(np.stack([scores.compared[there], scores.harm[there]], axis=1), restated)
    slope, harm = map(float, line.coef_[0])
    return BehaviourCurve(restated_slope=slope, harm_slope=harm, bias=float(line.intercept_[0]), threshold_nats=0.0)


def spread(keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Choose STRANGERS behaviours from all over."""
    return keys[:: max(1, len(keys) // STRANGERS)][:STRANGERS]


def threshold_of(scores: Scores, most_false: float) -> float:
    """Return what the given share of safe answers to a behaviour's own request exceeds, in nats."""
    safe = scores.own[:, RESTATED:]
    safe = np.sort(safe[~np.isnan(safe)])[::-1]
    return round(float(safe[int(most_false * len(safe))]), 3)
