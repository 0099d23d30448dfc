"""An executor that notes when its models were at work, and on how much."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from memory_audit.models.lazy import LazyEmbedder, LazyEntailment

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.jobs.executors.executor import Executor, Work
    from memory_audit.jobs.executors.replay_group import Program, ReplayGroup
    from memory_audit.models.protocols import Embedder, EntailmentModel, Generator

__all__ = ["MeasuredExecutor", "WorkDone"]

T = TypeVar("T")


@dataclass(slots=True)
class WorkDone:
    """What one model did."""

    units: int = 0
    """Replays, each sample one; texts; or pairs, each asked both ways."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    """When it was at work: begin and end, Unix seconds."""

    @contextmanager
    def at_work(self, units: int) -> Iterator[None]:
        """Note that so much is done in the block; nothing where that fails."""
        begin = time.time()
        yield
        self.spans.append((begin, time.time()))
        self.units += units


class MeasuredExecutor:
    """Implements `memory_audit.jobs.executors.executor.Executor` by another one."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._done = {role: WorkDone() for role in ("backbone", "embedder", "nli")}
        self.machine, self.on_cluster = executor.machine, executor.on_cluster

    @property
    def done(self) -> Mapping[str, WorkDone]:
        """By role, of the models that did anything."""
        return {role: done for role, done in self._done.items() if done.units}

    @property
    def backbone(self) -> Generator:
        """See `Executor.backbone`."""
        return self._executor.backbone

    @property
    def embedder(self) -> Embedder:
        """See `Executor.embedder`."""
        return _MeasuredEmbedder(self._executor.embedder, self._done["embedder"])

    @property
    def entailment(self) -> EntailmentModel:
        """See `Executor.entailment`."""
        return _MeasuredEntailment(self._executor.entailment, self._done["nli"])

    def replay(self, groups: Sequence[ReplayGroup], program: Program) -> Iterator[Outcome]:
        """See `Executor.replay`."""
        asked = [question.ablation for group in groups for question in group.questions]
        with self._done["backbone"].at_work(sum(program.replays_of(ablation) for ablation in asked)):
            yield from self._executor.replay(groups, program)

    def each(self, works: Sequence[Work[T]]) -> Iterator[T]:
        """See `Executor.each`; what they ask is not measured here."""
        return self._executor.each(works)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """See `Executor.run`."""
        return self._executor.run(work)

    def close(self) -> None:
        """See `Executor.close`."""
        self._executor.close()


class _MeasuredEmbedder:
    def __init__(self, model: Embedder, done: WorkDone) -> None:
        self.model_id, self._model, self._done = model.model_id, model, done

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        _load(self._model)
        with self._done.at_work(len(texts)):
            return self._model.embed(texts)


class _MeasuredEntailment:
    def __init__(self, model: EntailmentModel, done: WorkDone) -> None:
        self.model_id, self._model, self._done = model.model_id, model, done

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        _load(self._model)
        with self._done.at_work(len(pairs) // 2):
            return self._model.probabilities(pairs)


def _load(model: object) -> None:
    """Load a model of this process before it is measured."""
    if isinstance(model, LazyEmbedder | LazyEntailment):
        model.load()
