"""Whole graphs by Ray Data: read and embed → neighbours → NLI both ways → write, each tenant on its own.

    tenants ──flat_map──▶ blocks ──map──▶ what was asked
            StoreGraphs.blocks     compare, which writes

A block is a block of Ray Data too: it goes on as soon as it is there, and where NLI is behind, whoever makes blocks
waits. Embedder and NLI are the executor's pools, which hold each model once and say which weights they serve. This
process sees of each block two numbers. Starting again, as Ray does with what a lost node held, asks what no block on
disk answers.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from memory_audit.errors import AuditError, ModelError, UsageError
from memory_audit.jobs.graph.blocks import StoreGraphs, compare
from memory_audit.models.extras import with_extra
from memory_audit.models.gpu_neighbours import GpuCandidates
from memory_audit.models.loading import gpu_present

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_audit.models.protocols import Embedder, EntailmentModel

__all__ = ["compare_stores"]

GPU_SHARE = 0.1
"""Of a GPU, for the task that finds neighbours: what it holds there is a tenant's vectors."""

READING, COMPARING = 0.5, 0.1
"""CPUs that a task says it takes: both kinds fit on one, and what compares waits for a model."""

AT_MODEL = 2
"""Blocks at each NLI replica: one that is compared, and one that is next. So much is asked again after a crash."""


def compare_stores(
    graphs: StoreGraphs, groups: Sequence[Sequence[str]], embedder: Embedder, entailment: EntailmentModel
) -> Iterator[dict[str, int]]:
    """Compare tenants, those of a group in one task, and yield what `compare` says of each block as it is done.

    Raises:
        AuditError: a model failed, or a disk; what was written is good.
        UsageError: Ray Data is not installed.
    """
    try:
        from ray.data import DataContext, TaskPoolStrategy, from_items  # noqa: PLC0415 - takes a second to import
    except ImportError as error:
        raise UsageError(f"ray.data needs {error.name}: {with_extra('audit')}") from None
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what fails is raised, too
    warnings.filterwarnings("ignore", "The maximum number of concurrent tasks", UserWarning)  # of few blocks
    cluster, free = ray.cluster_resources(), ray.available_resources()
    gpu = GPU_SHARE if free.get("GPU", 0) >= GPU_SHARE else 0
    context = DataContext.get_current().copy()
    context.target_max_block_size = 1  # by itself Ray Data joins what is yielded to blocks of 128 MB
    context.enable_progress_bars = context.print_on_execution_start = False
    context.raise_original_map_exception = True
    folder = graphs.folder
    readers = max(1, min(len(groups), int(cluster.get("CPU", 1))))
    at_models = AT_MODEL * max(1, int(cluster.get("GPU", 0)))

    def blocks(group: dict[str, Any]) -> Iterator[dict[str, Any]]:
        propose = GpuCandidates() if gpu_present() else None
        for tenant in group["tenants"]:
            yield from graphs.blocks(tenant, embedder, propose)

    def compared(block: dict[str, Any]) -> dict[str, int]:
        return compare(block, folder, entailment)

    with DataContext.current(context):
        done = (
            from_items([{"tenants": list(group)} for group in groups], override_num_blocks=len(groups))
            .flat_map(blocks, num_cpus=READING, num_gpus=gpu or None, compute=TaskPoolStrategy(size=readers))
            .map(compared, num_cpus=COMPARING, compute=TaskPoolStrategy(size=at_models))
        )
        try:
            yield from done.iter_rows()
        except Exception as error:
            raise _cause(error) from error


def _cause(error: BaseException) -> BaseException:
    """Return the error of ours that Ray's hold, or one that says in a line what Ray says."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, AuditError) and not isinstance(inner, RayError):  # Ray's is of both, and a page long
            return type(inner)(str(inner).split("\n", 1)[0])  # Ray Data adds lines to it
        inner = getattr(inner, "cause", None) or inner.__cause__
    return ModelError(f"comparing memories on Ray failed: {' '.join(str(error).split())[-300:]}")
