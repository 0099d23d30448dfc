"""Build one tenant's consistency graph with the executor's models, past what the run folder already knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audit.consistency.entailment import plan_pairs, weights
from audit.consistency.graph import ConsistencyGraph, build_graph
from audit.consistency.neighbours import all_pairs, nearest

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
"""Pairs scored between two writes to disk: some seconds of work on two cores, so that the bar moves."""


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
    with reporter.stage("embedding memories", len(entries)) as progress:
        vectors = executor.embed([*texts, *(entry.response for entry in entries)])
        progress.advance(len(entries))
    run.record_models(executor.model_ids())
    full, responses = vectors[: len(texts)], vectors[len(texts) :]
    neighbours = (
        all_pairs(full)
        if len(entries) <= config.all_pairs_below
        else nearest(full, config.neighbours, seed=config.seed)
    )
    keys = [run.pair_key(texts[i], texts[j]) for i, j in neighbours.pairs.tolist()]
    missing = [row for row, key in enumerate(keys) if key not in run.weights()]
    with reporter.stage("comparing memories (NLI)", len(missing)) as progress:
        for start in range(0, len(missing), PAIRS_PER_WRITE):
            rows = missing[start : start + PAIRS_PER_WRITE]
            scored = weights(executor.entail(plan_pairs(texts, neighbours.pairs[rows])))
            run.record_models(executor.model_ids())
            run.add_weights({keys[row]: weight for row, weight in zip(rows, scored.tolist(), strict=True)})
            progress.advance(len(rows))
    known = run.weights()
    return TenantGraph(
        graph=build_graph(neighbours, np.array([known[key] for key in keys], dtype=np.float64)), responses=responses
    )
