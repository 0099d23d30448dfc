"""How well are hazards read: by the backbone, by entailment, by a probe, and by all? Fits the packaged curves of all.

    python -m training.hazard_reading [--backbone packaged:1.5b-int8] [--write]

On the packaged calibration texts (`training.label_calibration`), which are no benchmark's: hazards,
safe twins in nearly the same words, and everyday records. Out of fold; a hazard and its twin share a fold. The probe
was fitted on other texts (`training.hazard_probing`). `--write` replaces the packaged curves, and the thresholds that
go with them are printed for the taxonomy file: the share of texts without the label that may exceed one is
`--most-false`. What was asked is kept; a second start continues.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from benchmarks.gate.derivation.measures import auc
from benchmarks.harness.answers_on_disk import study_executor
from benchmarks.harness.resultfile import ResultFile
from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import default_taxonomy
from memory_audit.guard.text.forms import visible
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.hazards.extraction import HazardReader
from memory_audit.models.hazards.signature_cache import SignatureCache
from memory_audit.models.hazards.statements import CURVES_FILE, statement_evidence
from memory_audit.models.loading import ModelSpecs, load_entailment, load_probe
from memory_audit.models.weights.cache import cache_dir
from training.label_calibration import calibration_texts, thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.models.activations.hazard_probe import Probe
    from memory_audit.models.protocols import EntailmentModel, Generator

__all__ = ["STATEMENTS", "fit_curve", "out_of_fold"]

STATEMENTS = {
    "skip_validation": (
        "A check is left out.", "The review is skipped.", "Validation is not done.", "Approval is not waited for.",
        "The test is bypassed.", "The work goes on without being checked.",
    ),
    "remote_exec": (
        "Code from an outside source is run.", "A script from the internet is executed.",
        "A program from a stranger is started.", "A command from somebody outside is run.",
    ),
    "external_upload": (
        "Data is sent to someone outside the organisation.", "Files are uploaded to a public place.",
        "Private information is given to outsiders.", "Copies leave the company.",
    ),
    "force_success": (
        "Success is reported whatever happened.", "A failure is hidden.",
        "The result is recorded as good without regard to the truth.", "Something false is recorded.",
        "Errors are ignored and the work is marked as done.",
    ),
    "disable_audit": (
        "Logging is switched off.", "Records of what happened are deleted.", "Monitoring or alerts are turned off.",
        "The change leaves no trace in the log.",
    ),
}  # fmt: skip
"""Per label of the packaged taxonomy; written before any of them was measured."""

FOLDS = 8
TOGETHER = 4
"""Texts in a row that share a fold: a hazard and its safe twin follow each other."""

RIDGE = 5.0
"""L2 penalty on standardised columns; 3 to 30 give the same AUC within 0.02."""


def main() -> None:
    """Read, compare, fit."""
    options = _options()
    taxonomy, texts = default_taxonomy(), calibration_texts()
    truth = np.array([[label in item.labels for label in taxonomy.names] for item in texts])
    executor, generator = study_executor(options.backbone, kv_gib=options.kv_gib)
    nli = load_entailment(ModelSpecs(nli=options.nli))
    probe = load_probe(options.nli)
    if probe is None:
        raise UsageError(f"--nli {options.nli!r:.80}: the probe goes with the packaged NLI model only")
    config = {
        "backbone": generator.model_id, "nli": nli.model_id, "probe": probe.model_id, "texts": len(texts),
        "taxonomy": taxonomy.digest,
    }  # fmt: skip
    command = f"python -m training.hazard_reading --backbone {options.backbone}"
    results = ResultFile("hazard_reading", command, config, fresh=True)
    reporter = Reporter(Console())
    try:
        margins = read_margins(generator, [item.text for item in texts], taxonomy, reporter)
    finally:
        executor.close()
    evidence = read_evidence(nli, [visible(item.text) for item in texts], reporter)
    probed = read_probe_odds(probe, [visible(item.text) for item in texts], reporter)
    scores: dict[str, dict[str, NDArray[np.float64]]] = {
        "backbone": {}, "entailment": {}, "probe": {}, "backbone and entailment": {}, "all": {}
    }  # fmt: skip
    curves: dict[str, Any] = {}
    for column, label in enumerate(taxonomy.names):
        own = evidence[label]
        both = np.c_[own, margins[:, column]]
        together = np.c_[both, probed[:, column]]
        scores["backbone"][label] = margins[:, column]
        scores["entailment"][label] = out_of_fold(own, truth[:, column])
        scores["probe"][label] = probed[:, column]
        scores["backbone and entailment"][label] = out_of_fold(both, truth[:, column])
        scores["all"][label] = out_of_fold(together, truth[:, column])
        weights = fit_curve(together, truth[:, column])
        curves[label] = {
            "statements": STATEMENTS[label], "weights": [round(float(weight), 6) for weight in weights[:-3]],
            "margin_slope": round(float(weights[-3]), 6), "probe_slope": round(float(weights[-2]), 6),
            "bias": round(float(weights[-1]), 6),
        }  # fmt: skip
    cuts: dict[str, Mapping[str, float]] = {}
    for method, by_label in scores.items():
        read = [
            ({label: float(by_label[label][row]) for label in taxonomy.names}, item.labels)
            for row, item in enumerate(texts)
        ]
        cuts[method] = thresholds(read, taxonomy, most_false=options.most_false)
        results.add_row({
            "method": method,
            "auc": {label: round(auc(by_label[label], truth[:, n]), 4) for n, label in enumerate(taxonomy.names)},
            "thresholds_nats": cuts[method],
            "found": {
                label: int((by_label[label][truth[:, n]] > cuts[method][label]).sum())
                for n, label in enumerate(taxonomy.names)
            },
            "truly": {label: int(truth[:, n].sum()) for n, label in enumerate(taxonomy.names)},
            "harmless_with_a_label": sum(
                any(row[label] > cuts[method][label] for label in taxonomy.names) for row, labels in read if not labels
            ),
            "harmless": sum(not labels for _, labels in read),
        })  # fmt: skip
    if options.write:
        target = Path(__file__).parents[1] / "models" / "data" / CURVES_FILE
        record = {
            "taxonomy": taxonomy.digest, "nli": nli.model_id, "backbone": generator.model_id, "probe": probe.model_id,
            "labels": curves,
        }  # fmt: skip
        target.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for row in results.rows:
        reporter.say(json.dumps(row))


def read_margins(
    generator: Generator, texts: Sequence[str], taxonomy: Taxonomy, reporter: Reporter
) -> NDArray[np.float64]:
    """Ask the backbone, shape (texts, labels); 0, which says nothing, where it answered outside the schema."""

    async def read() -> list[dict[str, float] | None]:
        reader, found = HazardReader(generator), []
        with reporter.stage("reading hazards (backbone)", len(texts)) as progress:
            for start in range(0, len(texts), 16):
                found += await asyncio.gather(*(reader.margins(text, taxonomy) for text in texts[start : start + 16]))
                progress.advance(min(16, len(texts) - start))
        return found

    margins = asyncio.run(read())
    return np.array([[0.0 if item is None else item[label] for label in taxonomy.names] for item in margins])


def read_evidence(model: EntailmentModel, texts: Sequence[str], reporter: Reporter) -> dict[str, NDArray[np.float64]]:
    """Ask the NLI model: per label shape (texts, its statements). Kept in the user's cache."""
    statements = [statement for group in STATEMENTS.values() for statement in group]
    rows = []
    with (
        closing(SignatureCache(cache_dir() / "hazard_evidence.sqlite")) as kept,
        reporter.stage("reading hazards (NLI)", len(texts)) as progress,
    ):
        for text in texts:
            key = hashlib.sha256(json.dumps([model.model_id, statements, text]).encode()).hexdigest()
            row = kept.get(key)
            if row is None:
                row = dict(zip(statements, statement_evidence(model, text, statements).tolist(), strict=True))
                kept.put(key, row)
            rows.append(row)
            progress.advance()
    return {
        label: np.array([[row[statement] for statement in group] for row in rows])
        for label, group in STATEMENTS.items()
    }


def read_probe_odds(probe: Probe, texts: Sequence[str], reporter: Reporter) -> NDArray[np.float64]:
    """Read activations, shape (texts, labels)."""
    found = []
    with reporter.stage("reading hazards (probe)", len(texts)) as progress:
        for start in range(0, len(texts), 16):
            found.append(probe.log_odds(texts[start : start + 16]))
            progress.advance(len(found[-1]))
    return np.concatenate(found).astype(np.float64)


def fit_curve(columns: NDArray[np.float64], truth: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Fit a logistic curve whose slopes are not negative; returns them, per column, and the bias."""
    from scipy.optimize import minimize  # noqa: PLC0415 - comes with sentence-transformers

    mean, spread = columns.mean(axis=0), columns.std(axis=0) + 1e-9
    design = np.c_[(columns - mean) / spread, np.ones(len(columns))]
    sign = np.where(truth, 1.0, -1.0)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        wrong = -sign * (design @ weights)
        slope = design.T @ (-sign / (1 + np.exp(-wrong)))
        slope[:-1] += RIDGE * weights[:-1]
        return float(np.logaddexp(0, wrong).sum() + RIDGE * (weights[:-1] ** 2).sum() / 2), slope

    bounds = [(0.0, None)] * columns.shape[1] + [(None, None)]
    weights = minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    slopes = weights[:-1] / spread
    return np.append(slopes, weights[-1] - float(slopes @ mean))


def out_of_fold(columns: NDArray[np.float64], truth: NDArray[np.bool_], seed: int = 0) -> NDArray[np.float64]:
    """Return each text's log-odds from a curve that was fitted without its fold, shape (texts,)."""
    group = np.arange(len(truth)) // TOGETHER
    fold = (np.random.default_rng(seed).permutation(group.max() + 1) % FOLDS)[group]
    scores = np.zeros(len(truth))
    for number in range(FOLDS):
        held = fold == number
        weights = fit_curve(columns[~held], truth[~held])
        scores[held] = columns[held] @ weights[:-1] + weights[-1]
    return scores


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="packaged:1.5b-int8")
    parser.add_argument("--nli", default="packaged")
    parser.add_argument("--most-false", type=float, default=0.01)
    parser.add_argument("--write", action="store_true", help="replace the packaged curves")
    parser.add_argument("--kv-gib", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
