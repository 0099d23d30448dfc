"""Build one tenant's consistency graph with the executor's models, past what the run folder already knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audit.consistency.entailment import plan_pairs, weights
from audit.consistency.graph import ConsistencyGraph, build_graph
from audit.consistency.neighbours import all_pairs, nearest
from jobs.embedding import embed_texts, pieces_of
from jobs.shards import pair_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audit.config import AuditConfig
    from audit.entry import Entry
    from jobs.executor import Executor
    from jobs.progress import Reporter
    from jobs.run_folder import RunFolder

__all__ = ["TenantGraph", "consistency_graph"]

PAIRS_PER_WRITE = 32
"""At least so many pairs are scored between two writes to disk: some seconds of work on two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantGraph:
    """A tenant's graph with the embeddings of its responses."""

    graph: ConsistencyGraph
    responses: NDArray[np.float32]
    """Shape (entries, dimensions), unit rows."""


def consistency_graph(
    entries: Sequence[Entry], config: AuditConfig, executor: Executor, run: RunFolder, reporter: Reporter
) -> TenantGraph:
    """Embed, find neighbours, ask NLI both ways about each pair, and score (paper eq. 8).

    Raises:
        ModelError: a model failed; what was scored is on disk.
    """
    texts = [entry.text for entry in entries]
    vectors = embed_texts("memories", [*texts, *(entry.response for entry in entries)], executor, run, reporter)
    full, responses = vectors[: len(texts)], vectors[len(texts) :]
    neighbours = (
        all_pairs(full)
        if len(entries) <= config.all_pairs_below
        else nearest(full, config.neighbours, seed=config.seed)
    )
    keys = [pair_key(texts[i], texts[j]) for i, j in neighbours.pairs.tolist()]
    _take_over(keys, executor, run, reporter)
    missing = [row for row, key in enumerate(keys) if key not in run.weights]
    step = pieces_of(len(missing), PAIRS_PER_WRITE)
    with reporter.stage("comparing memories (NLI)", len(missing)) as progress:
        for start in range(0, len(missing), step):
            rows = missing[start : start + step]
            scored = weights(executor.entail(plan_pairs(texts, neighbours.pairs[rows])))
            run.record_models(executor.model_ids())
            run.add_weights({keys[row]: weight for row, weight in zip(rows, scored.tolist(), strict=True)})
            progress.advance(len(rows))
    known = run.weights
    return TenantGraph(
        graph=build_graph(neighbours, np.array([known[key] for key in keys], dtype=np.float64)), responses=responses
    )


def _take_over(keys: Sequence[str], executor: Executor, run: RunFolder, reporter: Reporter) -> None:
    """Take what an earlier run knows of these pairs, if the same model said it."""
    missing = {key for key in keys if key not in run.weights}
    if not missing or run.earlier is None:
        return
    executor.entail([])  # loaded now, so that its id is known
    run.record_models(executor.model_ids())
    if found := run.earlier.weights(missing, run.models["nli"]):
        run.add_weights(found)
        reporter.say(f"{len(found)} of {len(missing)} comparisons are those of {run.earlier.path}")
