"""The replicas: Ray actors, each of which hosts one model.

A model is loaded beside the actor's event loop, so that an actor that loads for minutes still says that it is there. A
backbone is asked by many at once, and batches by itself. Of the other models, calls that wait while a batch is computed
are answered together, whichever task they are from: nothing waits for a batch to fill.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import ray

from memory_audit.errors import ModelError, ModelLostError
from memory_audit.models.backbone.generator_http import OutageError
from memory_audit.models.loading import ModelSpecs, load_embedder, load_entailment, load_generator
from memory_audit.models.services.losses import check_served

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from numpy.typing import NDArray

    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.models.protocols import Generator

__all__ = ["CONCURRENT_CALLS", "HEALTH", "ROWS", "EmbedderActor", "EntailmentActor", "GeneratorActor"]

CONCURRENT_CALLS = 1_000
"""Calls that one actor holds at once; more wait in Ray's queue before it."""

HEALTH = "health"
"""Of what Ray asks an actor beside its other calls, however many of them wait."""

ROWS = 256
"""Pairs or texts that are computed together, if no single call has more."""

STALL_S = 900.0
"""How long no answer may come of an engine that is asked: a prompt takes seconds, and one that hangs never ends."""

ENGINE_DIED = 1
"""Exit code of a replica whose engine died, or hangs."""

_F = TypeVar("_F", bound="Callable[..., object]")
_beside_calls: Callable[[_F], _F] = ray.method(concurrency_group=HEALTH)


class GeneratorActor:
    """Hosts one backbone: a vLLM engine, an HTTP client or the fake."""

    def __init__(self, specs: ModelSpecs) -> None:
        self._specs = specs
        self._cannot_load: ModelError | None = None
        self._answered_s = 0.0

    @cached_property
    def _generator(self) -> Generator:
        return load_generator(self._specs)  # here and not in __init__: Ray hides what a constructor raises

    async def _loaded(self) -> Generator:
        return await asyncio.to_thread(lambda: self._generator)

    @_beside_calls
    async def model_id(self) -> str:
        """Load the model where that has not happened yet, and return its id."""
        return (await self._loaded_anew()).model_id

    @_beside_calls
    async def is_there(self) -> bool:
        """Say that the process answers, also while it loads."""
        return True

    async def generate(self, request: GenerationRequest, model_id: str) -> Completion:
        """Answer one request of a run that `model_id` serves; where the engine died or hangs, the process ends instead.

        Raises:
            ModelLostError: this replica, started anew, cannot load its model; or it reaches no server.
        """
        generator = await self._loaded_anew()
        check_served(generator.model_id, model_id)
        try:
            return await self._unless_it_hangs(generator.generate(request))
        except OutageError:  # of a server behind a URL, which a new process would reach no better
            raise
        except ModelLostError:
            os._exit(ENGINE_DIED)

    async def _unless_it_hangs(self, answer: Coroutine[Any, Any, Completion]) -> Completion:
        task = asyncio.ensure_future(answer)
        try:
            while not (await asyncio.wait({task}, timeout=STALL_S))[0]:
                if time.monotonic() - self._answered_s >= STALL_S:  # no other one was answered either
                    os._exit(ENGINE_DIED)
            self._answered_s = time.monotonic()
            return task.result()
        finally:
            task.cancel()

    async def _loaded_anew(self) -> Generator:
        if self._cannot_load is None:
            try:
                return await self._loaded()
            except ModelError as error:
                self._cannot_load = error  # not tried again: each request would wait a minute for the next failure
        raise ModelLostError(str(self._cannot_load))


class _RowsActor:
    """Hosts a model that answers a list with an array of rows."""

    load: ClassVar[staticmethod[[ModelSpecs], Any]]
    method: ClassVar[str]
    """Of the model: what it is asked."""

    def __init__(self, specs: ModelSpecs) -> None:
        self._specs = specs
        self._thread = ThreadPoolExecutor(1)  # one for all batches: libraries keep threads of their own for each
        self._waiting: deque[_Call] = deque()
        self._work: asyncio.Task[None] | None = None

    @cached_property
    def _model(self) -> Any:
        return type(self).load(self._specs)  # here and not in __init__: Ray hides what a constructor raises

    async def _loaded(self) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._model)

    @_beside_calls
    async def model_id(self) -> str:
        """Load the model where that has not happened yet, and return its id."""
        model_id: str = (await self._loaded()).model_id
        return model_id

    @_beside_calls
    async def is_there(self) -> bool:
        """Say that the process answers, also while it loads or computes."""
        return True

    async def rows(self, items: Sequence[Any], model_id: str) -> NDArray[np.float32]:
        """Answer for a run that `model_id` serves, together with others that wait.

        Returns:
            Shape (len(items), columns), in the order given.
        """
        if "_model" not in self.__dict__:
            await self._loaded()
        check_served(self._model.model_id, model_id)
        call = _Call(items)
        self._waiting.append(call)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_all())
        return await call.answer

    async def _answer_all(self) -> None:
        while self._waiting:
            joined = [self._waiting.popleft()]
            rows = len(joined[0].items)
            while self._waiting and rows + len(self._waiting[0].items) <= ROWS:
                joined.append(self._waiting.popleft())
                rows += len(joined[-1].items)
            await self._answer(joined)

    async def _answer(self, joined: Sequence[_Call]) -> None:
        """Compute calls together; where that fails one by one, so that each fails for what it asks itself alone."""
        items = list(itertools.chain.from_iterable(call.items for call in joined))
        ask = getattr(self._model, self.method)
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._thread, ask, items)
        except Exception as error:  # noqa: BLE001 - whatever a model raises is its caller's to see
            if len(joined) > 1:
                for call in joined:
                    await self._answer([call])
            elif not joined[0].answer.done():
                joined[0].answer.set_exception(error)
            return
        ends = itertools.accumulate(len(call.items) for call in joined[:-1])
        for call, part in zip(joined, np.split(rows, list(ends)), strict=True):
            if not call.answer.done():  # who asked may have given up
                call.answer.set_result(part)


class _Call:
    """One call that waits."""

    __slots__ = ("answer", "items")

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items
        self.answer: asyncio.Future[NDArray[np.float32]] = asyncio.get_running_loop().create_future()


class EntailmentActor(_RowsActor):
    """Hosts one NLI model."""

    load, method = staticmethod(load_entailment), "probabilities"


class EmbedderActor(_RowsActor):
    """Hosts one embedder."""

    load, method = staticmethod(load_embedder), "embed"
