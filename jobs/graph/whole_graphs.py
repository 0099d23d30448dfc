"""Make the whole graphs of many tenants on a cluster, block by block, for whoever needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.jobs.graph.blocks import StoreGraphs
from memory_audit.jobs.graph.graph_folder import GraphFolder
from memory_audit.jobs.watching.progress import stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.run.run_seal import Codes
    from memory_audit.request import AuditRequest

__all__ = ["FEWEST_ENTRIES", "GRAPH", "leaves_of", "store_graphs"]

GRAPH = "graph"
"""Folder of a run."""

FEWEST_ENTRIES = 5_000
"""Of a run: fewer are compared by the groups of their tenants before Ray Data's own tasks have started."""

BLOCKS = 256
"""Of a run at least, where a block keeps LEAST_NODES: what is being compared as a driver dies is 1 % of all."""

LEAST_NODES, MOST_NODES = 16, 256


def store_graphs(
    request: AuditRequest,
    groups: Sequence[Sequence[str]],
    executor: Executor,
    where: tuple[Path, Codes],
    earlier: tuple[Path, Codes] | None = None,
) -> tuple[GraphFolder, int]:
    """Make the whole graphs of tenants that are not on disk yet, and return them all, and how many pairs were asked.

    Args:
        request: Which store, and how it is to be compared.
        groups: Tenants, those that one task reads together.
        executor: On a cluster.
        where: The folder that graphs are kept in, made if absent, and the codes of what is there.
        earlier: Likewise of an earlier run, whose comparisons and embeddings are taken over.

    Raises:
        AuditError: a model failed, or a disk; what was written is good.
    """
    from memory_audit.jobs.graph.pipeline import compare_stores  # noqa: PLC0415 - brings Ray

    embedder, entailment = executor.embedder, executor.entailment
    models = {"embedder": embedder.model_id, "nli": entailment.model_id}
    folder = GraphFolder(path=where[0], codes=where[1], models=models)
    known = None if earlier is None else GraphFolder(path=earlier[0], codes=earlier[1], models=models)
    wanted = [[tenant for tenant in group if not folder.is_complete(tenant)] for group in groups]
    graphs = StoreGraphs(
        snapshot=request.snapshot, config=request.config, folder=folder, earlier=known,
        block_nodes=min(max(leaves_of(request) // BLOCKS, LEAST_NODES), MOST_NODES),
    )  # fmt: skip
    asked = 0
    with stage("comparing memories (NLI)", leaves_of(request)) as progress:
        for done in compare_stores(graphs, [group for group in wanted if group], embedder, entailment):
            asked += done["asked"]
            progress.advance(done["entries"])
    return folder, asked


def leaves_of(request: AuditRequest) -> int:
    """Count what the logs of a request's tenants hold: how blocks are cut must not depend on what is done."""
    return sum(request.snapshot.log_refs[tenant].size for tenant in request.by_tenant)
