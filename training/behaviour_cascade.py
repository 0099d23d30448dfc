"""Weighs the two readers of behaviours together, and says how well both tell restatements from safe answers.

    python -m training.behaviour_cascade                  # writes act_cascade.json; an hour, or seconds
    python -m training.behaviour_cascade --device cuda    # reads on an accelerator

On `training/behaviours/held`, which no network was fitted on (`training.behaviour_reading`, and there `--second`). The
first reader says of every text whether it may restate its scenario's behaviour; the second reads those of which the
first says more than what `--most-open` of the safe answers exceed. A logistic regression on what both say of these is
the joint curve; what one safe answer in a hundred to a behaviour's own request exceeds, and one in ten, are the
thresholds. All are in `models/data/act_cascade.json`, and a test holds them against the
result file. The first rows are of the first reader alone, with thresholds for the same shares of the same texts.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from benchmarks.harness.command import run
from benchmarks.harness.resultfile import ResultFile
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.activations.behaviour_cascade import CascadedBehaviourReader, JointCurve
from memory_audit.models.activations.behaviour_reader import FIRST, SECOND, read_weights
from training.behaviours.corpus import EACH, HELD, RESTATED, notes, scenarios
from training.behaviours.kept_reader import KeptReader
from training.behaviours.report import notes_row, odds_with_own_acts, rewritten_row, rows_of
from training.behaviours.scores import FLAT, Scores, spread, threshold_of
from training.behaviours.states import states_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.models.activations.behaviour_reader import ReaderFile
    from training.behaviours.corpus import Note, Scenario


def main() -> None:
    """Read, weigh, report."""
    options = _options()
    reporter, held, later = Reporter(Console()), scenarios(HELD), notes(HELD / "notes")

    first, second = (kept(source, reporter, options.device) for source in (FIRST, SECOND))
    held_texts = [text for of in held for text in (*of.texts, *of.rewritten, *of.rewritten_right)]
    first.prepare([*held_texts, *(note.text for note in later)])
    alone = scores_by(first, held, later)
    open_nats = threshold_of(alone, options.most_open)
    second.prepare(opened(alone, held, later, open_nats))
    joint = fitted(first, second, held, alone.own >= open_nats, open_nats)
    cascade = CascadedBehaviourReader(first, second, alone=first.curve, joint=joint, curve=FLAT)
    both = scores_by(cascade, held, later)
    refused, doubted = (threshold_of(both, share) for share in (options.most_false, options.most_doubted))
    config = {
        "first": first.model_id, "second": second.model_id, "held": len(held), "most_open": options.most_open,
        "most_false": options.most_false, "most_doubted": options.most_doubted, "joint": asdict(joint),
        "threshold_nats": refused, "doubt_nats": doubted,
    }  # fmt: skip
    results = ResultFile("act_cascade", "python -m training.behaviour_cascade", config, fresh=True)
    results.add_row(read_twice(alone, later, open_nats))
    parts = np.array([scenario.part for scenario in held])
    for name, reader, scores in (("first", first, alone), ("both", cascade, both)):
        limits = [threshold_of(scores, share) for share in (options.most_false, options.most_doubted)]
        said = partial(odds_with_own_acts, reader, held)
        rows = [*rows_of(scores, parts, *limits), notes_row(scores, later, *limits), rewritten_row(held, said, *limits)]
        for row in rows:
            # Comparison and harm are one number here.
            told = {key: value for key, value in row.items() if not key.endswith("_alone")}
            results.add_row({"readers": name} | told)
            reporter.say(json.dumps(results.rows[-1]))


def kept(source: ReaderFile, reporter: Reporter, device: str = "cpu") -> KeptReader:
    """Return a packaged reader over states that are kept in the user's cache."""
    weights, digest = read_weights(source)
    return KeptReader(
        weights, digest, partial(states_of, reporter=reporter, updates=weights.updates, device=device, source=source)
    )


def opened(scores: Scores, held: Sequence[Scenario], later: Sequence[Note], open_nats: float) -> list[str]:
    """Return what the second reader is to read: behaviours, what the first leaves open, and all that was rewritten."""
    texts = [scenario.texts[0] for scenario in held]
    left = np.fmax(scores.own, scores.elsewhere) >= open_nats
    for scenario, row in zip(held, left, strict=True):
        texts += [scenario.texts[place] for place in scenario.writes if row[place - 1]]
        texts += [*scenario.rewritten, *scenario.rewritten_right]
    return texts + [note.text for note, nats in zip(later, scores.notes, strict=True) if nats >= open_nats]


def read_twice(alone: Scores, later: Sequence[Note], open_nats: float) -> dict[str, Any]:
    """Return which share of texts the first reader leaves open: with their own behaviour, and with ten of others."""
    ordinary = np.array([not note.bad for note in later])
    said = {
        "restated": alone.own[:, :RESTATED], "safe": alone.own[:, RESTATED:],
        "safe_elsewhere": alone.elsewhere[:, RESTATED:], "ordinary_notes": alone.notes[ordinary],
    }  # fmt: skip
    shares: dict[str, Any] = {
        name: round(float((odds[np.isfinite(odds)] >= open_nats).mean()), 4) for name, odds in said.items()
    }
    return {"part": "read by both"} | shares


def fitted(
    first: KeptReader, second: KeptReader, held: Sequence[Scenario], left: NDArray[np.bool_], open_nats: float
) -> JointCurve:
    """Return the joint curve, by logistic regression on texts with their own behaviours.

    Args:
        first: The first reader.
        second: The second.
        held: Scenarios.
        left: Which of their writes the first leaves open, shape (scenarios, writes).
        open_nats: Where it does.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    said, restated = [], []
    for number, scenario in enumerate(held):
        for place in scenario.writes:
            if left[number, place - 1]:
                said.append([*first.said(scenario, place), *second.said(scenario, place)])
                restated.append(place <= RESTATED)
    line = LogisticRegression(C=np.inf).fit(np.array(said), np.array(restated))
    compared, harm, compared_too, harm_too, bias = (round(float(one), 4) for one in (*line.coef_[0], *line.intercept_))
    return JointCurve(
        restated_slopes=(compared, compared_too), harm_slopes=(harm, harm_too), bias=bias, open_nats=open_nats
    )


def scores_by(reader: BehaviourReader, held: Sequence[Scenario], later: Sequence[Note]) -> Scores:
    """Return what a reader says of all texts, as one number for a text and a behaviour."""
    keys = np.stack([reading.direction for reading in reader.taught([scenario.texts[0] for scenario in held])])
    own, elsewhere = (np.full((len(held), EACH - 1), np.nan) for _ in range(2))
    for number, scenario in enumerate(held):
        behaviours = np.concatenate([keys[number][None], spread(np.roll(keys, -1 - number, axis=0)[:-1])])
        for place in scenario.writes:
            found = reader.log_odds(reader.read([scenario.texts[place]])[0], behaviours)
            own[number, place - 1], elsewhere[number, place - 1] = found[0], found[1:].max(initial=-np.inf)
    told = [reader.log_odds(reading, spread(keys)).max() for reading in reader.read([note.text for note in later])]
    of_notes = np.array(told, np.float64)
    return Scores(
        curve=FLAT, compared=own, compared_elsewhere=elsewhere, harm=np.zeros_like(own), notes_compared=of_notes,
        notes_harm=np.zeros_like(of_notes),
    )  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="as torch names it")
    parser.add_argument("--most-open", type=float, default=0.25, help="share of safe answers that both may read")
    parser.add_argument("--most-false", type=float, default=0.01, help="share of safe answers that may be refused")
    parser.add_argument("--most-doubted", type=float, default=0.1, help="share of them that may be asked about twice")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
