"""The packaged reader of acts on scenarios that it was not fitted on; and whether a closer look would pay.

    python -m benchmarks.act_held                             # writes act_held.json
    python -m benchmarks.act_held --each 20 --closer 700      # writes act_held_closer.json

`benchmarks/acts/held` has scenarios made like those that the reader is fitted on (`benchmarks.act_reading`), by
language models again, and later: none was there when its texts, thresholds or weights were chosen. What it says of them
at its packaged thresholds tells whether those hold: one safe answer in a hundred to the act's own request is to be
refused, one in ten to be at least in doubt.

With `--closer N` a second reader is fitted like the packaged one, on N of the same scenarios drawn at random, over the
states of the packaged 1.5B, which takes four times as long to read a text. On the held scenarios the two are weighed by
logistic regressions, also with the text's key beside them (cosine with the removed text, MiniLM); each scenario is
judged by regressions fitted on others. Compared is how many restatements are refused where equally many safe answers
are. States are kept in the user's cache; a second start reads only new texts.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from audit.errors import UsageError
from benchmarks.acts.corpus import EACH, RESTATED, notes, scenarios
from benchmarks.acts.fitting import fit_reader
from benchmarks.acts.report import rows_of
from benchmarks.acts.scores import FLAT, scores_of
from benchmarks.acts.settings import Fit
from benchmarks.acts.states import scenario_states, states_of
from benchmarks.command import run
from benchmarks.derivation.measures import auc
from benchmarks.resultfile import ResultFile
from jobs.progress import Reporter
from models.act_reader import read_act_weights
from models.hazard_probe import BACKBONE
from models.loading import ModelSpecs, load_embedder
from models.packaged import ensure
from models.weights_cache import folder_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.acts.corpus import Scenario
    from benchmarks.acts.scores import Scores
    from models.act_reader import ActWeights

HELD = Path(__file__).parent / "acts" / "held"

CLOSER, CLOSER_LAYER = "1.5b", 14
"""Of 28 layers."""

NOTES_STEP = 2
"""Of the notes of ordinary days, the closer look is fitted on every second."""

SHARES = (0.01, 0.03, 0.1)
"""Of safe answers, at which readers are compared."""

FOLDS = 10


def main() -> None:
    """Read, weigh, report."""
    options = _options()
    reporter, there = Reporter(Console()), scenarios()
    if options.each is not None and options.each < 1:
        raise UsageError(f"--each is {options.each}, expected 1 or more")
    if options.closer is not None and not 1 <= options.closer <= len(there):
        raise UsageError(f"--closer is {options.closer}, expected 1 to {len(there)}: so many scenarios there are")
    held = held_scenarios(options.each)
    weights, digest = read_act_weights()
    first = scores_of(weights, held, scenario_states(held, reporter))
    config = {"backbone": folder_id(ensure(BACKBONE)), "acts": digest, "held": len(held)}
    command = "python -m benchmarks.act_held" + ("" if options.each is None else f" --each {options.each}")
    if options.closer is None:
        curve = weights.curve
        parts = np.array([scenario.part for scenario in held])
        rows = list(rows_of(first, parts, curve.threshold_nats, curve.doubt_nats))
        results = ResultFile("act_held", command, config, fresh=True)
    else:
        fitted = fitted_closer(drawn(there, options.closer), reporter)
        closer = scores_of(fitted, held, scenario_states(held, reporter, backbone=CLOSER, layer=CLOSER_LAYER))
        rows = compared(first, closer, nearness(held))
        config |= {"closer": folder_id(ensure(CLOSER)), "layer": CLOSER_LAYER, "fitted_on": options.closer}
        command += f" --closer {options.closer}"
        results = ResultFile("act_held_closer", command, config, fresh=True)
    for row in rows:
        results.add_row(row)
        reporter.say(json.dumps(row))


def held_scenarios(each: int | None, folder: Path = HELD) -> list[Scenario]:
    """Return the first `each` scenarios of every part; None is all."""
    by_part: dict[str, list[Scenario]] = defaultdict(list)
    for scenario in scenarios(folder):
        by_part[scenario.part].append(scenario)
    return [scenario for part in by_part.values() for scenario in part[:each]]


def drawn(found: Sequence[Scenario], count: int) -> list[Scenario]:
    """Return so many scenarios at random; more of them begin with the same ones."""
    order = list(found)
    random.Random(7).shuffle(order)
    return order[:count]


def fitted_closer(chosen: Sequence[Scenario], reporter: Reporter) -> ActWeights:
    """Fit a reader over the larger backbone's states."""
    remembered = notes()[::NOTES_STEP]
    told = states_of([note.text for note in remembered], reporter, backbone=CLOSER, layer=CLOSER_LAYER)
    noted = list(zip(remembered, told, strict=True))
    states = scenario_states(chosen, reporter, backbone=CLOSER, layer=CLOSER_LAYER)
    reporter.say(f"fitting on {len(chosen)} scenarios and {len(noted)} notes")
    return fit_reader(chosen, states, noted, Fit(), FLAT)


def nearness(held: Sequence[Scenario]) -> NDArray[np.float64]:
    """Return the cosine of each write's key with its act's, shape (scenarios, EACH - 1)."""
    vectors = load_embedder(ModelSpecs()).embed([text for scenario in held for text in scenario.texts])
    keys = vectors.reshape(len(held), EACH, -1)
    return np.asarray(np.einsum("ntd,nd->nt", keys[:, 1:], keys[:, 0]), np.float64)


def compared(first: Scores, closer: Scores, near: NDArray[np.float64]) -> list[dict[str, object]]:
    """Return a row for each way of weighing."""
    ways = {
        "first look": (first.compared, first.harm),
        "first look and key": (first.compared, first.harm, near),
        "closer look": (closer.compared, closer.harm),
        "both": (first.compared, first.harm, closer.compared, closer.harm),
        "both and key": (first.compared, first.harm, closer.compared, closer.harm, near),
    }
    truth = np.broadcast_to(np.arange(EACH - 1) < RESTATED, first.compared.shape)
    rows: list[dict[str, object]] = []
    for name, columns in ways.items():
        odds, restated = judged(columns, truth)
        safe = np.sort(odds[~restated])[::-1]
        row: dict[str, object] = {"weighed": name, "n": len(odds), "auc": round(auc(odds, restated), 4)}
        for share in SHARES:
            cut = safe[int(share * len(safe))]
            row[f"restated_refused_at_{share:.0%}_of_safe"] = round(float((odds[restated] > cut).mean()), 3)
        rows.append(row)
    return rows


def judged(
    columns: Sequence[NDArray[np.float64]], truth: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return log-odds of all texts that are there, each by a regression on other scenarios, and what is true."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.model_selection import GroupKFold, cross_val_predict  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    there = np.isfinite(columns[0])
    scenario = np.broadcast_to(np.arange(len(truth))[:, None], truth.shape)[there]
    told = cross_val_predict(
        make_pipeline(StandardScaler(), LogisticRegression()), np.stack([column[there] for column in columns], axis=1),
        truth[there], groups=scenario, cv=GroupKFold(FOLDS), method="decision_function",
    )  # fmt: skip
    return np.asarray(told, np.float64), truth[there]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, help="how many held scenarios of each part (default: all)")
    parser.add_argument("--closer", type=int, metavar="N", help="fit a second reader on N scenarios, and compare")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
