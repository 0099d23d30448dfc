"""Hazards from activations: fits a linear probe for each label, and says how far it carries to other work.

    python -m training.hazard_probing              # writes hazard_probing.json
    python -m training.hazard_probing --write      # and the packaged probe (models/data/hazard_probe.npz)

Trained on `training/hazard_texts`: 3,080 memory entries in eleven files by parts of working life, written for this
project by language models from a brief that names no benchmark (`oblique` and `plain_work` are ways of writing, of all
parts). For each of 616 scenarios two entries teach a hazard, one answers the same request safely in nearly the same
words, one is full of a hazard's words and teaches none, and one is plain. Reported on each file by a probe that was
fitted on the others (without the second file of the same part), and on the calibration texts, which are of other trades
and were written apart. States are kept in the user's cache; a second start reads only new texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from benchmarks.gate.derivation.measures import auc
from benchmarks.harness.resultfile import ResultFile
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.guard.text.forms import visible
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.activations.hazard_probe import PROBE_FILE
from memory_audit.models.activations.hidden_states import BACKBONE, LAYER, READING, WHOLE_TOKENS, HiddenStates
from memory_audit.models.weights.cache import cache_dir, folder_id
from memory_audit.models.weights.packaged import ensure_packed
from training.label_calibration import LabelledText, calibration_texts
from training.texts import read_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["STRENGTH", "TrainingText", "fit_probe", "kept_states", "training_texts"]

TEXTS = Path(__file__).parent / "hazard_texts"

STRENGTH = 0.01
"""Inverse L2 penalty on standardised states."""

KINDS = ("twin", "lookalike", "plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingText:
    """One entry of the training texts."""

    trade: str
    kind: str
    text: str
    labels: frozenset[str]


def training_texts(folder: Path = TEXTS) -> tuple[TrainingText, ...]:
    """Return the training texts, by trade."""
    return tuple(
        TrainingText(trade=name, kind=value["kind"], text=value["text"], labels=frozenset(value["labels"]))
        for name, value in read_texts(folder)
    )


def fit_probe(states: NDArray[np.float32], truth: NDArray[np.bool_]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Fit one logistic curve per label; states (texts, hidden), truth (texts, labels): weights and biases."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - a second to import

    mean, spread = states.mean(0), states.std(0) + 1e-6
    standard = (states - mean) / spread
    rows, biases = [], []
    for column in truth.T:
        curve = LogisticRegression(C=STRENGTH, max_iter=1_000).fit(standard, column)
        weights = curve.coef_[0] / spread
        rows.append(weights)
        biases.append(curve.intercept_[0] - weights @ mean)
    return np.asarray(rows, np.float32), np.asarray(biases, np.float32)


def kept_states(texts: Sequence[str], reporter: Reporter) -> NDArray[np.float32]:
    """Return each text's mean state, shape (texts, hidden), from the cache where it was read before."""
    folder = ensure_packed(BACKBONE)
    path = cache_dir() / f"hazard_states-{folder_id(folder).replace('@', '-')}-{LAYER}-{READING}.npz"
    known: dict[str, NDArray[np.float32]] = {}
    if path.is_file():
        with np.load(path) as data:
            known = dict(zip(data["keys"].tolist(), data["states"], strict=True))
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    new = [(key, text) for key, text in dict(zip(keys, texts, strict=True)).items() if key not in known]
    if new:
        states = HiddenStates(folder, window=WHOLE_TOKENS)
        with reporter.stage("reading texts (0.5B)", len(new)) as progress:
            for start in range(0, len(new), 16):
                part = new[start : start + 16]
                for (key, _), windows in zip(part, states.means([text for _, text in part]), strict=True):
                    if len(windows) != 1:
                        raise ValueError(f"a text of more than {WHOLE_TOKENS} tokens is not read as a whole")
                    known[key] = windows[0]
                progress.advance(len(part))
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, keys=np.array(list(known)), states=np.stack(list(known.values())))
        partial.replace(path)
    return np.stack([known[key] for key in keys])


def main() -> None:
    """Read, fit, report."""
    options = _options()
    reporter, taxonomy = Reporter(Console()), default_taxonomy()
    training, calibration = training_texts(), calibration_texts()
    every: list[TrainingText | LabelledText] = [*training, *calibration]
    texts = [visible(item.text) for item in every]
    states = kept_states(texts, reporter)
    truth = np.array([[label in item.labels for label in taxonomy.names] for item in every])
    trades = np.array([item.trade for item in training] + ["calibration texts"] * len(calibration))
    kinds = np.array([item.kind for item in training] + [""] * len(calibration))
    config = {
        "backbone": folder_id(ensure_packed(BACKBONE)), "layer": LAYER, "training": len(training),
        "taxonomy": taxonomy.digest,
    }  # fmt: skip
    results = ResultFile("hazard_probing", "python -m training.hazard_probing", config, fresh=True)
    own = trades != "calibration texts"
    for trade in [*dict.fromkeys(trades.tolist())]:
        held = trades == trade
        kin = np.array([name.removesuffix("_2") == trade.removesuffix("_2") for name in trades])
        weights, bias = fit_probe(states[own & ~kin], truth[own & ~kin])
        scores = states[held] @ weights.T + bias
        row = {
            "held_out": trade, "texts": int(held.sum()),
            "auc": {name: round(auc(scores[:, n], truth[held][:, n]), 3) for n, name in enumerate(taxonomy.names)},
        }  # fmt: skip
        hazard, worst = truth[held].any(1), scores.max(1)
        for kind in KINDS if trade in {item.trade for item in training} else ():
            chosen = hazard | (kinds[held] == kind)
            row[f"auc_hazard_against_{kind}"] = round(auc(worst[chosen], hazard[chosen]), 3)
        results.add_row(row)
        reporter.say(json.dumps(row))
    if options.write:
        weights, bias = fit_probe(states[own], truth[own])
        target = Path(__file__).parents[1] / "models" / "data" / PROBE_FILE
        np.savez(target, weights=weights, bias=bias, labels=np.array(taxonomy.names))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the packaged probe")
    return parser.parse_args()


if __name__ == "__main__":
    main()
