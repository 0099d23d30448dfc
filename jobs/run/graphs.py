"""Build tenants' consistency graphs with the executor's models, past what the run folder already knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memory_audit.consistency.entailment import plan_pairs, weights
from memory_audit.consistency.graph import TenantGraph, build_graph
from memory_audit.consistency.neighbours import all_pairs, nearest
from memory_audit.jobs.progress import stage
from memory_audit.jobs.run.batches import pieces
from memory_audit.jobs.run.embeddings import vectors_of
from memory_audit.jobs.run.shards import pair_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_audit.config import AuditConfig
    from memory_audit.consistency.neighbours import Neighbours
    from memory_audit.entry import Entry
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.run.run_folder import RunFolder

__all__ = ["consistency_graphs"]

PAIRS_PER_WRITE = 32
"""At least so many pairs are scored between two writes to disk: some seconds of work on two cores."""


def consistency_graphs(
    by_tenant: Mapping[str, Sequence[Entry]],
    config: AuditConfig,
    executor: Executor,
    run: RunFolder,
) -> dict[str, TenantGraph]:
    """Find each tenant's neighbours, ask NLI both ways about each pair, and score (paper eq. 8).

    No pair has entries of two tenants, but all tenants' questions go together: a model is kept busy by many small
    tenants as by a large one.

    Args:
        by_tenant: Entries whose texts and responses are embedded.
        config: What to do.
        executor: Whose NLI model answers.
        run: What is known; what is learnt is kept there.

    Raises:
        ModelError: the model failed; what was scored is on disk.
    """
    found: dict[str, tuple[Neighbours, list[str]]] = {}
    pairs: dict[str, tuple[str, str]] = {}
    for tenant, entries in by_tenant.items():
        texts = [entry.text for entry in entries]
        full = vectors_of(texts, run)
        neighbours = (
            all_pairs(full)
            if len(entries) <= config.all_pairs_below
            else nearest(full, config.neighbours, seed=config.seed)
        )
        asked = [(texts[i], texts[j]) for i, j in neighbours.pairs.tolist()]
        found[tenant] = neighbours, [pair_key(*pair) for pair in asked]
        pairs |= zip(found[tenant][1], asked, strict=True)
    _compare(pairs, executor, run)
    known = run.weights
    return {
        tenant: TenantGraph(
            graph=build_graph(neighbours, np.array([known[key] for key in keys], dtype=np.float64)),
            responses=vectors_of([entry.response for entry in by_tenant[tenant]], run),
        )
        for tenant, (neighbours, keys) in found.items()
    }


def _compare(pairs: Mapping[str, tuple[str, str]], executor: Executor, run: RunFolder) -> None:
    """Score the pairs that are not known yet."""
    missing = [key for key in pairs if key not in run.weights]
    if missing and run.earlier is not None:
        run.record_models({"nli": executor.entailment.model_id})
        for known in run.earlier.weights(missing, executor.entailment.model_id):
            run.add_weights(known)
        missing = [key for key in missing if key not in run.weights]
    with stage("comparing memories (NLI)", len(missing)) as progress:
        for part in pieces(missing, PAIRS_PER_WRITE):
            scored = weights(executor.entailment.probabilities(plan_pairs([pairs[key] for key in part])))
            run.record_models({"nli": executor.entailment.model_id})
            run.add_weights(dict(zip(part, scored.tolist(), strict=True)))
            progress.advance(len(part))
