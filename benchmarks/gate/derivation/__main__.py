"""Estimated derivation edges against ground truth: precision, recall, AUC, and how far a weight can be believed.

    python -m benchmarks.gate.derivation [--methods words embedding nli backbone] [--backbone NAME]
    [--write-calibration]

Scores of every method that ever ran with this configuration are kept in the result file, so methods can be run one at
a time, and the combinations are computed from what is there. All figures are out of fold: a topic is judged by a curve
and a threshold fitted on the other eleven. The texts keep names and numbers, as summaries do, and so word overlap alone
does well: read the others against it. With --write-calibration, curves over the whole corpus go into the package's
models/data.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gate.derivation.corpus import CorpusPair, hard_pairs, load_corpus
from benchmarks.gate.derivation.cosines import embedding_scores
from benchmarks.gate.derivation.measures import (
    auc,
    best_threshold,
    brier,
    calibration_error,
    cross_validated,
    fit,
    precision_recall,
    reliability,
)
from benchmarks.harness.intervals import bootstrap
from benchmarks.harness.resultfile import ResultFile
from memory_audit.models.derivation import (
    METHODS,
    backbone_margins,
    candidates,
    entailment_scores,
    word_scores,
)
from memory_audit.models.loading import ModelSpecs, load_embedder, load_entailment, load_generator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

FOREIGN = 3
TAU = 0.2
"""The audit's default: a weight from which an edge is strong."""

CANDIDATES = 8
CALIBRATION = Path(__file__).parents[3] / "models" / "data" / "derivation.json"


def main() -> None:
    """Run the benchmark and write its result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=["words", "embedding", "nli"])
    parser.add_argument("--backbone", default="packaged:1.5b")
    parser.add_argument("--nli", default="packaged")
    parser.add_argument("--embedder", default="packaged")
    parser.add_argument("--write-calibration", action="store_true")
    arguments = parser.parse_args()
    specs = ModelSpecs(backbone=arguments.backbone, nli=arguments.nli, embedder=arguments.embedder)
    embedder, corpus = load_embedder(specs), load_corpus()
    vectors = embedder.embed([memory.text for memory in (*corpus.earlier, *corpus.later)])
    pairs = hard_pairs(corpus, vectors[: len(corpus.earlier)], vectors[len(corpus.earlier) :], foreign=FOREIGN)
    config = {
        "earlier": len(corpus.earlier), "later": len(corpus.later), "pairs": len(pairs),
        "edges": sum(pair.edge for pair in pairs), "foreign": FOREIGN, "backbone": arguments.backbone,
        "nli": arguments.nli, "embedder": arguments.embedder,
    }  # fmt: skip
    command = "python -m benchmarks.gate.derivation --methods words embedding nli backbone"
    known = {row["method"]: row for row in ResultFile("derivation", command, config).rows if "scores" in row}
    result = ResultFile("derivation", command, config, fresh=True)
    for method in arguments.methods:
        known[method] = _measure(method, pairs, specs, embedder)
    for method in METHODS:
        if method in known:
            result.add_row(known[method])
    scores = {method: np.asarray(row["scores"], np.float64) for method, row in known.items()}
    measured = [method for method in METHODS if method in scores]
    sets = [names for size in range(1, len(measured) + 1) for names in itertools.combinations(measured, size)]
    for names in sets:
        row = _figures(names, scores, pairs)
        result.add_row(row)
        print(json.dumps({name: value for name, value in row.items() if name not in {"reliability", "by_kind"}}))
    _add_candidate_recall(result, corpus, vectors)
    if arguments.write_calibration:
        curves = {"+".join(names): _curve(names, scores, pairs) for names in sets}
        CALIBRATION.write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")
    print(f"written to {result.path}")


def _measure(method: str, pairs: Sequence[CorpusPair], specs: ModelSpecs, embedder: Any) -> dict[str, Any]:
    texts = [pair.texts for pair in pairs]
    began = time.perf_counter()
    unanswered = 0
    if method == "words":
        values, model_id = word_scores(texts).tolist(), "none"
    elif method == "embedding":
        values, model_id = embedding_scores(texts, embedder).tolist(), embedder.model_id
    elif method == "nli":
        model = load_entailment(specs)
        values, model_id = entailment_scores(texts, model).tolist(), model.model_id
    else:
        margins, model_id = asyncio.run(_ask(texts, specs))
        unanswered = sum(margin is None for margin in margins)
        values = [0.0 if margin is None else margin for margin in margins]
    return {
        "method": method, "model": model_id, "seconds": round(time.perf_counter() - began, 1),
        "unanswered": unanswered, "scores": [round(value, 4) for value in values],
    }  # fmt: skip


async def _ask(texts: Sequence[tuple[str, str]], specs: ModelSpecs) -> tuple[list[float | None], str]:
    generator = load_generator(specs)
    try:
        return await backbone_margins(texts, generator), generator.model_id
    finally:
        await generator.close()


def _figures(
    names: Sequence[str], scores: Mapping[str, NDArray[np.float64]], pairs: Sequence[CorpusPair]
) -> dict[str, Any]:
    edges = np.asarray([pair.edge for pair in pairs])
    topics = [pair.later.topic for pair in pairs]
    columns = np.column_stack([scores[name] for name in names])
    weights, decisions = cross_validated(columns, edges, topics)
    precision, recall = precision_recall(decisions, edges)
    strong_precision, strong_recall = precision_recall(weights >= TAU, edges)
    same = np.asarray([pair.earlier.topic == pair.later.topic for pair in pairs])
    kinds = np.asarray([pair.later.kind for pair in pairs])
    per_topic = [
        auc(weights[mine], edges[mine]) for topic in sorted(set(topics)) for mine in (np.asarray(topics) == topic,)
    ]
    return {
        "method": "+".join(names),
        "auc": round(auc(weights, edges), 4),
        "auc_by_topic_mean_95": [round(value, 4) for value in bootstrap(per_topic)],
        "auc_same_topic": round(auc(weights[same], edges[same]), 4),
        "precision": round(precision, 4),
        "recall": round(recall, 4),
        "f1": round(2 * precision * recall / max(precision + recall, 1e-9), 4),
        "brier": round(brier(weights, edges), 4),
        "calibration_error": round(calibration_error(weights, edges), 4),
        "strong_at_tau_precision": round(strong_precision, 4),
        "strong_at_tau_recall": round(strong_recall, 4),
        "threshold_whole_corpus": _curve(names, scores, pairs)["threshold"],
        "reliability": reliability(weights, edges),
        "by_kind": {
            kind: {
                "pairs": int((kinds == kind).sum()),
                "edges": int(edges[kinds == kind].sum()),
                "called": int(decisions[kinds == kind].sum()),
                "called_rightly": int((decisions & edges)[kinds == kind].sum()),
            }
            for kind in sorted(set(kinds.tolist()))
        },
    }


def _curve(
    names: Sequence[str], scores: Mapping[str, NDArray[np.float64]], pairs: Sequence[CorpusPair]
) -> dict[str, Any]:
    edges = np.asarray([pair.edge for pair in pairs])
    columns = np.column_stack([scores[name] for name in names])
    fitted = fit(columns, edges)
    return {
        "bias": round(fitted.bias, 5),
        "slopes": {name: round(slope, 5) for name, slope in zip(names, fitted.slopes, strict=True)},
        "threshold": round(best_threshold(fitted.weights(columns), edges), 4),
    }


def _add_candidate_recall(result: ResultFile, corpus: Any, vectors: NDArray[np.float32]) -> None:
    """How many true parents are among the nearest candidates of their child, in the whole store."""
    first = len(corpus.earlier)
    found = candidates(vectors, range(first, first + len(corpus.later)), CANDIDATES, 0.0)
    nearest = {
        (corpus.later[child - first].memory_id, corpus.earlier[parent].memory_id)
        for child, parent in found
        if parent < first
    }
    wanted = {(memory.memory_id, parent) for memory in corpus.later for parent in memory.parents}
    result.add_row({"candidates_per_child": CANDIDATES, "true_parents_among_them": len(nearest & wanted) / len(wanted)})


if __name__ == "__main__":
    main()
