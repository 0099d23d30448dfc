"""Models behind Ray actors, and the client sides that make a set of replicas look like one model.

Life of a replay: a Ray task holds an event's whole group of requests; its `RemoteGenerator` sends all of them to one
replica, so that variants of one prompt meet in one prefix cache; the actor runs them concurrently in one vLLM engine.
NLI pairs and texts are cut into chunks that go to the replicas in turn.

Life of a loss: a replica goes with its machine or its process, while it answers or while it loads. One whose engine
died ends its process. A replica that reaches no server is lost as well; one that refuses a request is not.

 1. Ray starts it anew on any machine that has room, RESTARTS times, and it loads its model again, or is lost for good.
 2. What it had not answered is asked again, here and not by Ray, whose `max_task_retries` counts attempts and uses
    them up before a lost machine is noticed. Asking twice is safe: no model remembers what it was asked.
 3. The other replicas answer meanwhile; without any, calls wait until its place is taken, `patience_s` at most.
 4. Each call says which weights it means: a replica that finds others on its new machine refuses.
 5. Where no replica can come back, or none does in time, the call is a ModelError: the run stops and can be resumed.

On a machine without GPUs actors ask Ray for no CPU: the engine's threads fill the cores anyway, and tasks that only
wait for it must still be scheduled.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
)

from memory_audit.errors import AuditError, ModelError, ModelLostError
from memory_audit.models.backbone.generator_http import OutageError
from memory_audit.models.loading import ModelSpecs, load_embedder, load_entailment, load_generator
from memory_audit.models.retries import RETRIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.models.protocols import Generator

__all__ = [
    "ActorPool", "EmbedderActor", "EntailmentActor", "GeneratorActor", "RemoteEmbedder", "RemoteEntailment",
    "RemoteGenerator", "start_actors",
]  # fmt: skip

CHUNK = 256
"""Pairs or texts of one call."""

CONCURRENT_REQUESTS = 256
"""Requests one actor holds at once: more than vLLM decodes together, so that its queue never runs dry."""

RESTARTS = 2
"""Times that Ray starts one replica anew: machines are lost now and then, but a model whose process ends a third time
does not fit its machine, or is asked what ends its engine, and would be started for ever."""

PATIENCE_S = 900.0
"""How long a lost replica's place may stay empty: an autoscaler's new machine is up and installed in less. Nothing else
tells a cluster that has lost its last machine of a kind from one that is about to get the next."""

START_S = 3_600.0
"""How long a replica may take to find a place and load its model, which may have to be downloaded first."""

RETRY_S = 1.0
"""Pause before replicas that are all away are asked again."""

ENGINE_DIED = 1
"""Exit code of a replica whose engine died."""

LOST = (ActorUnavailableError, ActorDiedError, ObjectLostError, OutOfMemoryError)
"""What Ray says of a replica that is away for now, and of one that is for good."""


class GeneratorActor:
    """Hosts one backbone: a vLLM engine, an HTTP client or the fake."""

    def __init__(self, specs: ModelSpecs) -> None:
        self._specs = specs
        self._cannot_load: ModelError | None = None

    @cached_property
    def _generator(self) -> Generator:
        return load_generator(self._specs)  # here and not in __init__: Ray hides what a constructor raises

    async def model_id(self) -> str:
        """Load the model where that has not happened yet, and return its id."""
        return self._generator.model_id

    async def generate(self, request: GenerationRequest, model_id: str) -> Completion:
        """Answer one request of a run that `model_id` serves; where the engine died, the process ends instead.

        Raises:
            ModelLostError: this replica, started anew, cannot load its model; or it reaches no server.
        """
        generator = self._loaded_anew()
        _check_served(generator.model_id, model_id)
        try:
            return await generator.generate(request)
        except OutageError:  # of a server behind a URL, which a new process would reach no better
            raise
        except ModelLostError:
            os._exit(ENGINE_DIED)

    def _loaded_anew(self) -> Generator:
        if self._cannot_load is None:
            try:
                return self._generator
            except ModelError as error:
                self._cannot_load = error  # not tried again: each request would wait a minute for the next failure
        raise ModelLostError(str(self._cannot_load))

    async def close(self) -> None:
        """Release the server."""
        await self._generator.close()


class _RowsActor:
    """Hosts a model that answers a list with an array of rows."""

    load: ClassVar[staticmethod[[ModelSpecs], Any]]

    def __init__(self, specs: ModelSpecs) -> None:
        self._specs = specs

    @cached_property
    def _model(self) -> Any:
        return type(self).load(self._specs)  # here and not in __init__: Ray hides what a constructor raises

    def model_id(self) -> str:
        """Load the model where that has not happened yet, and return its id."""
        model_id: str = self._model.model_id
        return model_id

    def rows(self, method: str, items: Sequence[Any], model_id: str) -> NDArray[np.float32]:
        """Ask a method of the model, for a run that `model_id` serves."""
        _check_served(self._model.model_id, model_id)
        found: NDArray[np.float32] = getattr(self._model, method)(items)
        return found


class EntailmentActor(_RowsActor):
    """Hosts one NLI model."""

    load = staticmethod(load_entailment)


class EmbedderActor(_RowsActor):
    """Hosts one embedder."""

    load = staticmethod(load_embedder)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPool:
    """The handles of the replicas of one model. Can be passed to Ray tasks."""

    model_id: str
    handles: tuple[Any, ...]
    patience_s: float = PATIENCE_S
    """How long a call waits while all replicas are away: carried here, since calls are made from other processes."""

    def stop(self) -> None:
        """End the actors and what they hold. Idempotent."""
        for handle in self.handles:
            ray.kill(handle)


class RemoteGenerator:
    """Implements `memory_audit.models.protocols.Generator` over the replicas of a pool.

    Args:
        pool: The replicas.
        group: Name of what the requests have in common (an event id): all go to one replica, while it is there.
            Without it, a request goes by its first message, which variants of one conversation share.
        home: Number of the replica that all go to, modulo how many there are; None leaves it to `group`.
    """

    def __init__(self, pool: ActorPool, group: str = "", *, home: int | None = None) -> None:
        self.model_id = pool.model_id
        self._pool, self._group, self._home = pool, group, home
        self._lost: set[Any] = set()  # asked last: a call to one that is away takes seconds to fail

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; see `memory_audit.models.protocols.Generator`."""
        outage = _Outage(self._pool.patience_s)
        try:
            while True:
                losses = []
                in_turn = _in_turn(self._pool.handles, self.replica(request))
                for handle in sorted(in_turn, key=self._lost.__contains__):
                    try:
                        answer: Completion = await handle.generate.remote(request, self.model_id)
                    except RayError as error:
                        if not isinstance(error, LOST) and not isinstance(_raised(error), ModelLostError):
                            raise
                        losses.append(error)
                        RETRIES["backbone"] += 1
                        self._lost.add(handle)
                    else:
                        self._lost.discard(handle)
                        return answer
                await asyncio.sleep(outage.pause_s(losses))
        except RayError as error:
            raise _as_model_error(error, self.model_id) from error

    def replica(self, request: GenerationRequest) -> int:
        """Return which replica answers a request: the same for all requests of a group."""
        key = self._group or request.messages[0].content
        return (zlib.crc32(key.encode()) if self._home is None else self._home) % len(self._pool.handles)

    async def close(self) -> None:
        """Close every replica's server; the actors stay until `ActorPool.stop`."""
        await asyncio.gather(*(handle.close.remote() for handle in self._pool.handles))


class _RemoteRows:
    def __init__(self, pool: ActorPool) -> None:
        self.model_id = pool.model_id
        self._pool = pool

    def _rows(self, method: str, items: Sequence[Any]) -> NDArray[np.float32]:
        """Send chunks to the replicas in turn; rows are in the order given, and one empty chunk keeps the shape."""
        pool = self._pool
        chunks = [list(items[start : start + CHUNK]) for start in range(0, len(items), CHUNK)] or [[]]
        in_turn = [_in_turn(pool.handles, number) for number in range(len(chunks))]
        asked = [(method, part, pool.model_id) for part in chunks]
        try:
            return np.concatenate(_ask_all(in_turn, "rows", asked, pool.patience_s))
        except RayError as error:
            raise _as_model_error(error, pool.model_id) from error


class RemoteEntailment(_RemoteRows):
    """Implements `memory_audit.models.protocols.EntailmentModel` over the replicas of a pool."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `memory_audit.models.protocols.EntailmentModel`."""
        return self._rows("probabilities", pairs)


class RemoteEmbedder(_RemoteRows):
    """Implements `memory_audit.models.protocols.Embedder` over the replicas of a pool."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see `memory_audit.models.protocols.Embedder`."""
        return self._rows("embed", texts)


def start_actors(actor: type, specs: ModelSpecs, *, replicas: int = 1, gpus: float = 0) -> ActorPool:
    """Start the replicas of one model and wait until each has loaded it, also where it is lost while it does.

    Args:
        actor: `GeneratorActor`, `EntailmentActor` or `EmbedderActor`.
        specs: Which models; each actor takes its own.
        replicas: How many.
        gpus: Of one replica, as Ray counts them (0.1 is a share); 0 on machines without any.

    Raises:
        UsageError: a specification that cannot be meant.
        ModelError: a model that cannot be loaded, or replicas with different weights.
    """
    options: dict[str, Any] = {"num_cpus": 0, "num_gpus": gpus, "max_restarts": RESTARTS}
    if not gpus:  # Ray gives an actor without CPUs one thread; ours compute, one kind at a time
        options["runtime_env"] = {"env_vars": {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}}
    if actor is GeneratorActor:
        options["max_concurrency"] = CONCURRENT_REQUESTS
    remote: Any = ray.remote(actor)
    handles = tuple(remote.options(**options).remote(specs) for _ in range(replicas))
    name = specs.backbone if actor is GeneratorActor else actor.__name__
    _wait_for_places(handles, name)
    try:
        ids = _ask_all([(handle,) for handle in handles], "model_id", [()] * replicas, PATIENCE_S)
    except RayError as error:
        for handle in handles:
            ray.kill(handle)
        raise _as_model_error(error, name) from error
    if len(set(ids)) > 1:
        raise ModelError(f"replicas serve different weights: {', '.join(sorted(set(ids))):.300}")
    return ActorPool(model_id=ids[0], handles=handles, patience_s=PATIENCE_S)


def _wait_for_places(handles: Sequence[Any], name: str) -> None:
    """Wait until each replica has loaded its model, or failed to.

    Raises:
        ModelError: one has not in START_S; all are ended.
    """
    asked = [handle.model_id.remote() for handle in handles]
    _, waiting = ray.wait(asked, num_returns=len(asked), timeout=START_S, fetch_local=False)
    if waiting:
        for handle in handles:
            ray.kill(handle)
        free, there = (found.get("GPU", 0) for found in (ray.available_resources(), ray.cluster_resources()))
        raise ModelError(
            f"{len(waiting)} of {len(asked)} replicas of {name:.80} did not start within {START_S:.0f} s: "
            f"{free:g} of the cluster's {there:g} GPUs are free; make room for them"
        )


def _in_turn(handles: tuple[Any, ...], first: int) -> tuple[Any, ...]:
    """Return the replicas in the order in which a call asks them."""
    first %= len(handles)
    return handles[first:] + handles[:first]


def _ask_all(
    handles: Sequence[tuple[Any, ...]], method: str, arguments: Sequence[tuple[Any, ...]], patience_s: float
) -> list[Any]:
    """Send each call to the first of its replicas, all at once; what is lost is sent to each of them in turn."""
    sent = [getattr(own[0], method).remote(*given) for own, given in zip(handles, arguments, strict=True)]
    answers = []
    for own, given, first in zip(handles, arguments, sent, strict=True):
        try:
            answers.append(ray.get(first))
        except LOST:
            RETRIES["small"] += 1
            answers.append(_ask_again(own, method, given, patience_s))
    return answers


def _ask_again(handles: tuple[Any, ...], method: str, arguments: tuple[Any, ...], patience_s: float) -> Any:
    outage = _Outage(patience_s)
    while True:
        losses = []
        for handle in handles:
            try:
                return ray.get(getattr(handle, method).remote(*arguments))
            except LOST as loss:
                losses.append(loss)
        time.sleep(outage.pause_s(losses))


class _Outage:
    """The time in which none of a call's replicas was there to answer it."""

    __slots__ = ("_ends_s", "_patience_s")

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._ends_s: float | None = None

    def pause_s(self, losses: Sequence[RayError]) -> float:
        """Return how long to wait before replicas that were all lost are asked again.

        Raises:
            RayError: the loss, where none can come back or they have been away for long enough.
        """
        now_s = time.monotonic()
        if self._ends_s is None:
            self._ends_s = now_s + self._patience_s
        away = [loss for loss in losses if isinstance(loss, ActorUnavailableError | ObjectLostError)]
        if not away:
            raise losses[0]
        if now_s >= self._ends_s:
            raise away[0]
        return RETRY_S


def _check_served(found: str, expected: str) -> None:
    """Raise ModelError unless a replica serves the run's weights: only one started anew elsewhere may not."""
    if found != expected:
        raise ModelError(
            f"a machine that took over serves {found:.80}, the run was started with {expected:.80}: "
            "give all machines the same weights"
        )


def _as_model_error(error: RayError, model: str) -> AuditError:
    """Return the error that the actor raised, or one that says that the actor is gone, or could not start."""
    cause = _raised(error)
    if isinstance(cause, AuditError):
        return type(cause)(str(cause))
    lines = [line for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    why = lines[-1].strip()[:200]
    if isinstance(error, OutOfMemoryError):  # Ray's own text is fifty lines about the node
        why = "the machine ran out of memory"
    elif isinstance(error, ActorUnavailableError):  # Ray's own text is about sockets
        why = "nothing took its place in time"
    return ModelError(f"the process that serves {model} died ({why})")


def _raised(error: RayError) -> object:
    """Return what the actor itself raised; something else where it raised nothing."""
    cause = getattr(error, "cause", None)
    return cause.cause if isinstance(cause, RayTaskError) else cause
