"""Models behind Ray actors, and the client sides that make a set of replicas look like one model.

Life of a replay: a Ray task holds one event's whole group of requests; its `RemoteGenerator` sends all of them to the
replica chosen by the group's name, so that variants of one prompt meet in one prefix cache; the actor runs them
concurrently in one vLLM engine. NLI pairs and texts are cut into chunks that go to the replicas in turn.

On a machine without GPUs actors ask Ray for no CPU: the engine's threads fill the cores anyway, and tasks that only
wait for it must still be scheduled.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from audit.errors import AuditError, ModelError
from models.loading import ModelSpecs, load_embedder, load_entailment, load_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audit.generation import Completion, GenerationRequest
    from models.protocols import Embedder, EntailmentModel, Generator

__all__ = [
    "ActorPool", "EmbedderActor", "EntailmentActor", "GeneratorActor", "RemoteEmbedder", "RemoteEntailment",
    "RemoteGenerator", "start_actors",
]  # fmt: skip

CHUNK_PAIRS = 256
CHUNK_TEXTS = 256
CONCURRENT_REQUESTS = 256
"""Requests one actor holds at once: more than vLLM decodes together, so that its queue never runs dry."""


class GeneratorActor:
    """Hosts one backbone: a vLLM engine, an HTTP client or the fake."""

    def __init__(self, specs: ModelSpecs) -> None:
        self._specs = specs

    @cached_property
    def _generator(self) -> Generator:
        return load_generator(self._specs)  # here and not in __init__: Ray hides what a constructor raises

    async def model_id(self) -> str:
        """Load the model where that has not happened yet, and return its id."""
        return self._generator.model_id

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request."""
        return await self._generator.generate(request)

    async def close(self) -> None:
        """Release the server."""
        await self._generator.close()


class EntailmentActor:
    """Hosts one NLI model."""

    def __init__(self, specs: ModelSpecs) -> None:
        self._specs = specs

    @cached_property
    def _model(self) -> EntailmentModel:
        return load_entailment(self._specs)  # here and not in __init__: Ray hides what a constructor raises

    def model_id(self) -> str:
        """Load the model where that has not happened yet, and return its id."""
        return self._model.model_id

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs."""
        return self._model.probabilities(pairs)


class EmbedderActor:
    """Hosts one embedder."""

    def __init__(self, specs: ModelSpecs) -> None:
        self._specs = specs

    @cached_property
    def _model(self) -> Embedder:
        return load_embedder(self._specs)  # here and not in __init__: Ray hides what a constructor raises

    def model_id(self) -> str:
        """Load the model where that has not happened yet, and return its id."""
        return self._model.model_id

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts."""
        return self._model.embed(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPool:
    """The handles of the replicas of one model. Can be passed to Ray tasks."""

    model_id: str
    handles: tuple[Any, ...]

    def stop(self) -> None:
        """End the actors and what they hold. Idempotent."""
        for handle in self.handles:
            ray.kill(handle)


class RemoteGenerator:
    """Implements `models.protocols.Generator` over the replicas of a pool.

    Args:
        pool: The replicas.
        group: Name of what the requests have in common (an event id): all go to one replica. Without it, a request
            goes by its first message, which variants of one conversation share.
    """

    def __init__(self, pool: ActorPool, group: str = "") -> None:
        self.model_id = pool.model_id
        self._pool, self._group = pool, group

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; see `models.protocols.Generator`."""
        handle = self._pool.handles[self.replica(request)]
        try:
            answer: Completion = await handle.generate.remote(request)
        except RayError as error:
            raise _as_model_error(error, self.model_id) from error
        return answer

    def replica(self, request: GenerationRequest) -> int:
        """Return which replica answers a request: the same for all requests of a group."""
        key = self._group or request.messages[0].content
        return zlib.crc32(key.encode()) % len(self._pool.handles)

    async def close(self) -> None:
        """Close every replica's server; the actors stay until `ActorPool.stop`."""
        await asyncio.gather(*(handle.close.remote() for handle in self._pool.handles))


class RemoteEntailment:
    """Implements `models.protocols.EntailmentModel` over the replicas of a pool."""

    def __init__(self, pool: ActorPool) -> None:
        self.model_id = pool.model_id
        self._pool = pool

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `models.protocols.EntailmentModel`."""
        return _gather(self._pool, "probabilities", pairs, CHUNK_PAIRS)


class RemoteEmbedder:
    """Implements `models.protocols.Embedder` over the replicas of a pool."""

    def __init__(self, pool: ActorPool) -> None:
        self.model_id = pool.model_id
        self._pool = pool

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see `models.protocols.Embedder`."""
        return _gather(self._pool, "embed", texts, CHUNK_TEXTS)


def start_actors(actor: type, specs: ModelSpecs, *, replicas: int = 1, gpus: float = 0) -> ActorPool:
    """Start the replicas of one model and wait until each has loaded it.

    Args:
        actor: `GeneratorActor`, `EntailmentActor` or `EmbedderActor`.
        specs: Which models; each actor takes its own.
        replicas: How many.
        gpus: Of one replica, as Ray counts them (0.1 is a share); 0 on machines without any.

    Raises:
        UsageError: a specification that cannot be meant.
        ModelError: a model that cannot be loaded, or replicas with different weights.
    """
    options: dict[str, Any] = {"num_cpus": 0, "num_gpus": gpus}
    if not gpus:  # Ray gives an actor without CPUs one thread; ours compute, one kind at a time
        options["runtime_env"] = {"env_vars": {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}}
    if actor is GeneratorActor:
        options["max_concurrency"] = CONCURRENT_REQUESTS
    remote: Any = ray.remote(actor)
    handles = tuple(remote.options(**options).remote(specs) for _ in range(replicas))
    try:
        ids = ray.get([handle.model_id.remote() for handle in handles])
    except RayError as error:
        for handle in handles:
            ray.kill(handle)
        raise _as_model_error(error, specs.backbone if actor is GeneratorActor else actor.__name__) from error
    if len(set(ids)) > 1:
        raise ModelError(f"replicas serve different weights: {', '.join(sorted(set(ids))):.300}")
    return ActorPool(model_id=ids[0], handles=handles)


def _gather(pool: ActorPool, method: str, items: Sequence[Any], chunk: int) -> NDArray[np.float32]:
    """Send chunks to the replicas in turn and return the rows in the order given; one empty chunk keeps the shape."""
    chunks = [list(items[start : start + chunk]) for start in range(0, len(items), chunk)] or [[]]
    pending = [
        getattr(pool.handles[number % len(pool.handles)], method).remote(part) for number, part in enumerate(chunks)
    ]
    try:
        return np.concatenate(ray.get(pending))
    except RayError as error:
        raise _as_model_error(error, pool.model_id) from error


def _as_model_error(error: RayError, model: str) -> AuditError:
    """Return the error that the actor raised, or one that says that the actor is gone, or could not start."""
    cause = error.cause if isinstance(error, RayTaskError) else getattr(error, "cause", None)
    if isinstance(cause, RayTaskError):
        cause = cause.cause
    if isinstance(cause, AuditError):
        return type(cause)(str(cause))
    lines = [line for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    # Ray's own text on lack of memory is fifty lines about the node.
    why = "the machine ran out of memory" if isinstance(error, OutOfMemoryError) else lines[-1].strip()[:200]
    return ModelError(
        f"the process that serves {model} died ({why}); "
        "finished replays are kept: start the same command again to continue"
    )
