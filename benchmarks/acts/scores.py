"""What readers say of texts that they were not fitted on, and the curve and thresholds that follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from audit.forget.act import ActCurve
from benchmarks.acts.corpus import EACH, RESTATED
from benchmarks.acts.fitting import fit_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.acts.corpus import Note, Scenario
    from benchmarks.acts.settings import Fit
    from jobs.progress import Reporter
    from models.act_reader import ActWeights

__all__ = ["FLAT", "FOLDS", "STRANGERS", "Scores", "out_of_fold", "scores_of", "threshold_of"]

FOLDS = 5
"""At most; ten parts are held out two at a time."""

STRANGERS = 10
"""Acts of other scenarios that a write is compared with: as many as the tombstones of the lockout benchmark."""

FLAT = ActCurve(restated_slope=1.0, harm_slope=0.0, bias=0.0, threshold_nats=0.0)
"""Of a reader whose curve is not fitted yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What writes of a scenario score against its act, and against acts of others; out of fold."""

    curve: ActCurve
    own: NDArray[np.float64]
    """Log-odds, shape (scenarios, restatements and safe answers); NaN where a text is missing."""

    strangers: NDArray[np.float64]
    """Largest log-odds over STRANGERS acts of the same fold, same shape."""

    compared: NDArray[np.float64]
    """What the comparing networks say of a text and its act, same shape."""

    harm: NDArray[np.float64]
    """What those of harm say of the text, same shape."""

    notes: NDArray[np.float64]
    """Largest log-odds of notes over STRANGERS acts, shape (notes,)."""

    def chosen(self, held: NDArray[np.bool_]) -> Scores:
        """Return those of some scenarios."""
        return replace(self, **{name: getattr(self, name)[held] for name in ("own", "strangers", "compared", "harm")})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What one text was read as."""

    number: int
    """Of the scenario, or of the note."""

    column: int
    """Of the text among the writes of its scenario; -1 in a note."""

    harm: float
    own: float
    """What the comparing networks say of it and its own act; NaN in a note."""

    strangers: NDArray[np.float32]
    """Likewise of acts of other scenarios."""


def out_of_fold(
    found: Sequence[Scenario],
    states: Sequence[Sequence[NDArray[np.float32]]],
    noted: Sequence[tuple[Note, NDArray[np.float32]]],
    fit: Fit,
    reporter: Reporter,
) -> Scores:
    """Read each part with a reader that was fitted on others, and fit the curve to what they say.

    Args:
        found: The scenarios.
        states: Of each scenario's texts, `passage_means` each.
        noted: Notes, likewise; those of the first topic are held out with the first fold, and so on.
        fit: How.
        reporter: For progress.
    """
    read: list[_Read] = []
    folds = min(FOLDS, len({scenario.part for scenario in found}))
    of_parts = _folds([scenario.part for scenario in found], folds)
    of_topics = _folds([note.topic for note, _ in noted], folds)
    with reporter.stage("fitting out of fold", folds) as progress:
        for fold in range(folds):
            others, mine = np.flatnonzero(of_parts != fold), np.flatnonzero(of_parts == fold)
            kept = [noted[n] for n in np.flatnonzero(of_topics != fold)]
            weights = fit_reader([found[n] for n in others], [states[n] for n in others], kept, fit, FLAT)
            keys = np.stack([weights.reading(states[n][0]).direction for n in mine])
            read += _writes(weights, found, states, mine, keys)
            for number in np.flatnonzero(of_topics == fold).tolist():
                reading = weights.reading(noted[number][1])
                told = weights.comparing.log_odds(reading.passages, _spread(keys))
                read.append(_Read(number=number, column=-1, harm=reading.harm_nats, own=np.nan, strangers=told))
            progress.advance()
    return _scores(read, _curve([item for item in read if item.column >= 0]), len(found), len(noted))


def scores_of(
    weights: ActWeights, found: Sequence[Scenario], states: Sequence[Sequence[NDArray[np.float32]]]
) -> Scores:
    """Read scenarios with a reader that was fitted on others, by its own curve; of notes nothing is said."""
    keys = np.stack([weights.reading(texts[0]).direction for texts in states])
    read = _writes(weights, found, states, np.arange(len(found)), keys)
    return _scores(read, weights.curve, len(found), 0)


def _writes(
    weights: ActWeights,
    found: Sequence[Scenario],
    states: Sequence[Sequence[NDArray[np.float32]]],
    mine: NDArray[np.intp],
    keys: NDArray[np.float32],
) -> Iterator[_Read]:
    """Yield what the writes of some scenarios are read as; `keys` are the directions of the acts of these, in order."""
    for place, number in enumerate(mine.tolist()):
        acts = np.concatenate([keys[place][None], _spread(np.roll(keys, -1 - place, axis=0)[:-1])])
        for column in found[number].writes:
            reading = weights.reading(states[number][column])
            own, *strangers = weights.comparing.log_odds(reading.passages, acts)
            yield _Read(
                number=number, column=column - 1, harm=reading.harm_nats, own=float(own), strangers=np.array(strangers)
            )  # fmt: skip


def _folds(groups: Sequence[str], folds: int) -> NDArray[np.intp]:
    """Return each item's fold: groups go round."""
    names = list(dict.fromkeys(groups))
    return np.array([names.index(group) % folds for group in groups], np.intp)


def _curve(read: Sequence[_Read]) -> ActCurve:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    line = LogisticRegression().fit([(item.own, item.harm) for item in read], [item.column < RESTATED for item in read])
    restated, harm = map(float, line.coef_[0])
    return ActCurve(restated_slope=restated, harm_slope=harm, bias=float(line.intercept_[0]), threshold_nats=0.0)


def _scores(read: Iterable[_Read], curve: ActCurve, scenarios: int, notes: int) -> Scores:
    shape = (scenarios, EACH - 1)
    own, strangers, compared, harm = (np.full(shape, np.nan) for _ in range(4))
    of_notes = np.full(notes, np.nan)
    for item in read:
        largest = curve.log_odds(item.harm, item.strangers).max()
        if item.column < 0:
            of_notes[item.number] = largest
            continue
        where = item.number, item.column
        own[where], strangers[where] = curve.log_odds(item.harm, np.array([item.own]))[0], largest
        compared[where], harm[where] = item.own, item.harm
    return Scores(curve=curve, own=own, strangers=strangers, compared=compared, harm=harm, notes=of_notes)


def _spread(keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Choose STRANGERS acts from all over a fold."""
    return keys[:: max(1, len(keys) // STRANGERS)][:STRANGERS]


def threshold_of(scores: Scores, most_false: float) -> float:
    """Return what the given share of safe answers to an act's own request exceeds, in nats."""
    safe = scores.own[:, RESTATED:]
    safe = np.sort(safe[~np.isnan(safe)])[::-1]
    return round(float(safe[int(most_false * len(safe))]), 3)
