"""Tenants' consistency graphs: embedded and compared with the executor's models, past what the run folder knows."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.consistency.entailment import plan_pairs, weights
from memory_audit.consistency.tenant_graph import TenantGraph
from memory_audit.errors import UsageError
from memory_audit.jobs.run.batches import pieces
from memory_audit.jobs.run.embeddings import embed_texts, vectors_of
from memory_audit.jobs.run.shards import pair_key
from memory_audit.jobs.watching.progress import stage, tally

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from memory_audit.config import AuditConfig
    from memory_audit.entry import Entry
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.graph.graph_folder import GraphFolder
    from memory_audit.jobs.run.run_folder import RunFolder

__all__ = ["consistency_graphs", "extend_graphs"]

PAIRS_PER_WRITE = 32
"""At least so many pairs are scored between two writes to disk: some seconds of work on two cores."""


def consistency_graphs(
    by_tenant: Mapping[str, Sequence[Entry]],
    config: AuditConfig,
    executor: Executor,
    run: RunFolder,
    stored: GraphFolder | None = None,
) -> dict[str, TenantGraph]:
    """Return each tenant's graph: whole where the configuration needs that, else nothing is known of it yet.

    Args:
        by_tenant: Their live entries.
        config: Which graph.
        executor: Whose models answer.
        run: What is known; what is learnt is kept there.
        stored: Whole graphs that were made beforehand; one that is not there, or not all of it, is made now.

    Raises:
        ModelError: a model failed; what was embedded and scored is on disk.
    """
    graphs = {
        tenant: TenantGraph(
            entries, neighbours=config.neighbours, all_pairs_below=config.all_pairs_below, seed=config.seed,
            whole=config.whole_graph,
        )
        for tenant, entries in by_tenant.items()
    }  # fmt: skip
    if config.whole_graph:
        if stored is not None:
            _recall(graphs, stored, executor, run)
        extend_graphs(dict.fromkeys(graphs.values(), ()), executor, run)
    return graphs


def _recall(graphs: Mapping[str, TenantGraph], stored: GraphFolder, executor: Executor, run: RunFolder) -> None:
    """Take the graphs that are stored."""
    found = {tenant: graph for tenant, graph in graphs.items() if stored.is_complete(tenant)}
    if not found:
        return
    responses = {tenant: [entry.response for entry in graph.entries] for tenant, graph in found.items()}
    embed_texts(chain.from_iterable(responses.values()), executor, run)
    run.record_models(stored.models)
    for tenant, graph in found.items():
        with suppress(UsageError):  # of other memories, or damaged: it is made again
            graph.recall(stored.graph(tenant, graph), vectors_of(responses[tenant], run))


def extend_graphs(wanted: Mapping[TenantGraph, Collection[str]], executor: Executor, run: RunFolder) -> None:
    """Find the neighbours of some entries, ask NLI both ways about each pair that is new, and score (paper eq. 8).

    No pair has entries of two tenants, but all tenants' questions go together: a model is kept busy by many small
    tenants as by a large one.

    Args:
        wanted: Entry ids by graph; one that is not embedded yet is.
        executor: Whose models answer.
        run: What is known; what is learnt is kept there.

    Raises:
        ModelError: a model failed; what was embedded and scored is on disk.
    """
    wanted = {graph: entry_ids for graph, entry_ids in wanted.items() if not graph.is_complete}
    fresh = [graph for graph in wanted if not graph.is_embedded]
    embed_texts((text for graph in fresh for texts in _texts(graph) for text in texts), executor, run)
    for graph in fresh:
        graph.embed(*(vectors_of(texts, run) for texts in _texts(graph)))
    asked = {graph: graph.plan(entry_ids) for graph, entry_ids in wanted.items()}
    keys = {graph: [pair_key(*pair) for pair in pairs] for graph, pairs in asked.items()}
    _compare(
        {key: pair for graph in asked for key, pair in zip(keys[graph], asked[graph], strict=True)}, executor, run
    )  # fmt: skip
    for graph in wanted:
        graph.observe(np.array([run.weights[key] for key in keys[graph]], dtype=np.float64))


def _texts(graph: TenantGraph) -> Iterator[list[str]]:
    """Yield what is embedded of a graph, as it takes it; a large store's texts are made twice, and held once."""
    yield graph.texts
    yield [entry.response for entry in graph.entries]


def _compare(pairs: Mapping[str, tuple[str, str]], executor: Executor, run: RunFolder) -> None:
    """Score the pairs that are not known yet."""
    missing = [key for key in pairs if key not in run.weights]
    if missing and run.earlier is not None:
        run.record_models({"nli": executor.entailment.model_id})
        if known := run.earlier.weights(missing, executor.entailment.model_id):
            run.add_weights(known)
        missing = [key for key in missing if key not in run.weights]
    tally().of("compare").known += len(pairs) - len(missing)
    if not missing:
        return
    with stage("comparing memories (NLI)", len(missing), label="compare") as progress:
        for part in pieces(missing, PAIRS_PER_WRITE):
            scored = weights(executor.entailment.probabilities(plan_pairs([pairs[key] for key in part])))
            run.record_models({"nli": executor.entailment.model_id})
            run.add_weights(dict(zip(part, scored.tolist(), strict=True)))
            progress.advance(len(part))
