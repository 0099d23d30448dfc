"""The executor in this process: no Ray. For small stores, for debugging, and as the reference of the Ray executor."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from memory_audit.jobs.executors.replay_group import stream_outcomes
from memory_audit.models.backbone.generator_vllm import SHARED_GPU
from memory_audit.models.loading import load_embedder, load_entailment, load_generator

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.attribution.replays.ablation import Outcome
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

    def __init__(
        self, specs: ModelSpecs, generator: Generator | None = None, *, closes_generator: bool = False
    ) -> None:
        self._specs = replace(specs, vllm=replace(specs.vllm, gpu_memory_share=SHARED_GPU))  # all are in this process
        self._generator = generator
        self._owns_generator = generator is None or closes_generator
        self._entailment: EntailmentModel | None = None
        self._embedder: Embedder | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start_backbone(self) -> None:
        """See `Executor.start_backbone`."""
        self._backbone()

    def replay(self, groups: Sequence[ReplayGroup], program: Program) -> Iterator[Outcome]:
        """See `Executor.replay`."""
        generator, loop = self._backbone()
        return stream_outcomes(groups, program, lambda _: generator, loop)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Executor.embed`."""
        if self._embedder is None:
            self._embedder = load_embedder(self._specs)
        return self._embedder.embed(texts)

    def entail(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """See `Executor.entail`."""
        if self._entailment is None:
            self._entailment = load_entailment(self._specs)
        return self._entailment.probabilities(pairs)

    def ask(self, work: Callable[[Generator], Coroutine[Any, Any, T]]) -> T:
        """See `Executor.ask`."""
        generator, loop = self._backbone()
        return loop.run_until_complete(work(generator))

    def _backbone(self) -> tuple[Generator, asyncio.AbstractEventLoop]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        if self._generator is None:
            self._generator = load_generator(self._specs)
        return self._generator, self._loop

    def model_ids(self) -> dict[str, str]:
        """See `Executor.model_ids`."""
        used = {"backbone": self._generator, "nli": self._entailment, "embedder": self._embedder}
        return {role: model.model_id for role, model in used.items() if model is not None}

    def close(self) -> None:
        """End the backbone that this executor started, and its loop."""
        if self._loop is not None:
            if self._generator is not None and self._owns_generator:
                self._loop.run_until_complete(self._generator.close())
                self._generator = None
            self._loop.close()
            self._loop = None
