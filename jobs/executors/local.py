"""The executor in this process: no Ray. For small stores, for debugging, and as the reference of the Ray executor."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from memory_audit.jobs.executors.replay_group import stream_outcomes
from memory_audit.models.backbone.generator_vllm import SHARED_GPU
from memory_audit.models.lazy import LazyEmbedder, LazyEntailment
from memory_audit.models.loading import load_generator

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.jobs.executors.executor import Work
    from memory_audit.jobs.executors.replay_group import Program, ReplayGroup
    from memory_audit.models.loading import ModelSpecs
    from memory_audit.models.protocols import Embedder, EntailmentModel, Generator

__all__ = ["LocalExecutor"]

T = TypeVar("T")


class LocalExecutor:
    """Implements `memory_audit.jobs.executors.executor.Executor`.

    Args:
        specs: The models; each is loaded when first needed.
        generator: A backbone to use instead of the one in `specs`, for tests and benchmarks that hold one already.
        closes_generator: Whether `close` ends that one, too. An engine that nobody ends may hold up the interpreter.
    """

    on_cluster = False

    def __init__(
        self, specs: ModelSpecs, generator: Generator | None = None, *, closes_generator: bool = False
    ) -> None:
        self.machine = socket.gethostname()
        self._specs = replace(specs, vllm=replace(specs.vllm, gpu_memory_share=SHARED_GPU))  # all are in this process
        self._generator = generator
        self._owns_generator = generator is None or closes_generator
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def backbone(self) -> Generator:
        """See `Executor.backbone`."""
        if self._generator is None:
            self._generator = load_generator(self._specs)
        return self._generator

    @cached_property
    def embedder(self) -> Embedder:
        """See `Executor.embedder`; its id is known before it is loaded."""
        return LazyEmbedder(self._specs)

    @cached_property
    def entailment(self) -> EntailmentModel:
        """See `Executor.entailment`; its id is known before it is loaded."""
        return LazyEntailment(self._specs)

    def replay(self, groups: Sequence[ReplayGroup], program: Program) -> Iterator[Outcome]:
        """See `Executor.replay`."""
        return stream_outcomes(groups, program, self._serving, self._running_loop())

    def each(self, works: Sequence[Work[T]]) -> Iterator[T]:
        """See `Executor.each`; one after the other."""
        for work in works:
            yield work(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """See `Executor.run`."""
        return self._running_loop().run_until_complete(work)

    def _serving(self, _event_id: str) -> Generator:
        """Return what answers the questions of an event."""
        return self.backbone

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def close(self) -> None:
        """End the backbone that this executor started, and its loop."""
        if self._generator is not None and self._owns_generator:
            self.run(self._generator.close())
            self._generator = None
        if self._loop is not None:
            self._loop.close()
            self._loop = None
