"""The executor on a Ray cluster: actors host the models, tasks carry whole events and stream outcomes back.

Life of a round: the driver packs the round's groups, whole events only, into tasks of about REPLAYS_PER_TASK
questions. A task sends its questions to the backbone's replicas, one replica per event, awaits them concurrently, and
yields each outcome as it arrives; the driver writes it to disk.

What a lost node costs, by what was on it:

    tasks   Ray repeats a task from its start, TASK_RETRIES times, while its stream is taken up where it was: as
            outcomes come in any order, some then come twice and others not at all. Outcomes are keyed by content, so
            what comes twice is one, and what did not come is asked again.
    models  Other replicas answer meanwhile; Ray starts the lost one anew where there is room (`models.ray_actors`). So
            where only the engine of a replica died.
    head    Nothing goes on without it. Ray ends the driver, with exit code 1 and a line of its own, within a minute of
            losing the head; a driver on the head goes with it.

Where nothing takes the place of what was lost within `memory_audit.models.ray_actors.PATIENCE_S`, the run stops with a
ModelError. After that, as after the head's loss, the run folder is the resume: the same command, given again,
continues.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from memory_audit.errors import ModelError, UsageError
from memory_audit.jobs.executors.replay_group import stream_outcomes
from memory_audit.models.backbone.generator_vllm import SHARED_GPU
from memory_audit.models.loading import served_here
from memory_audit.models.ray_actors import (
    EmbedderActor,
    EntailmentActor,
    GeneratorActor,
    RemoteEmbedder,
    RemoteEntailment,
    RemoteGenerator,
    start_actors,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from memory_audit.attribution.replays.ablation import Outcome
    from memory_audit.jobs.executors.replay_group import Program, ReplayGroup
    from memory_audit.models.loading import ModelSpecs
    from memory_audit.models.protocols import Embedder, EntailmentModel, Generator
    from memory_audit.models.ray_actors import ActorPool

__all__ = ["GpuShares", "RayExecutor"]

T = TypeVar("T")

REPLAYS_PER_TASK = 64
"""Twice what one replica decodes together: its queue never runs dry, and a lost task repeats little."""

TASK_RETRIES = 3

CONNECT_S = 10.0
"""How long a cluster's head may take to answer; Ray by itself goes on trying for longer than anybody waits."""

_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS
"""How HTTP/2, which gRPC speaks, is begun (RFC 9113, sec. 3.4): by either side with a frame of settings, type 4."""

LOOK_S = 5.0
"""How often a driver that gets no outcomes looks whether any node is left that could bring them."""


class RayExecutor:
    """Implements `memory_audit.jobs.executors.executor.Executor`.

    Args:
        specs: The models.
        address: `None` starts Ray on this machine and ends it on close; otherwise the cluster's address.
        replicas: Backbone replicas; 0 is as many as `GpuShares` says.
    """

    def __init__(self, specs: ModelSpecs, *, address: str | None = None, replicas: int = 0) -> None:
        self._specs = specs
        self._replicas = replicas
        self._pools: dict[str, ActorPool] = {}
        self._shares: GpuShares | None = None
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            if address is None:  # Ray's own default makes workers yield to everything else on a machine it does not own
                os.environ.setdefault("RAY_worker_niceness", "0")
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            try:
                _reach(address or "")
                with _own_termination():
                    ray.init(
                        address=address or "local",
                        log_to_driver=False,
                        include_dashboard=False if address is None else None,
                        logging_level="error",
                    )
            except (ConnectionError, ValueError, RuntimeError) as error:
                reason = " ".join(str(error).split())[:200]
                if address is None:
                    raise UsageError(f"Ray cannot be started on this machine: {reason}; use --local") from None
                raise UsageError(f"no Ray cluster at {address!r}: {reason}; start one or leave --address out") from None

    @property
    def backbone(self) -> Generator:
        """See `Executor.backbone`."""
        return RemoteGenerator(self._pool("backbone"))

    @property
    def embedder(self) -> Embedder:
        """See `Executor.embedder`; its replicas say its id, so asking for it starts them."""
        return RemoteEmbedder(self._pool("embedder"))

    @property
    def entailment(self) -> EntailmentModel:
        """See `Executor.entailment`; as `embedder`."""
        return RemoteEntailment(self._pool("nli"))

    def replay(self, groups: Sequence[ReplayGroup], program: Program) -> Iterator[Outcome]:
        """See `Executor.replay`."""
        missing = {question.ablation.pair_id for group in groups for question in group.questions}
        while missing:
            before = len(missing)
            for outcome in self._stream(_only(groups, missing), program):
                if outcome.pair_id in missing:
                    missing.remove(outcome.pair_id)
                    yield outcome
            if len(missing) == before:
                return  # nothing more comes; the caller names what is missing

    def _stream(self, groups: Sequence[ReplayGroup], program: Program) -> Iterator[Outcome]:
        # Tasks that are left when this ends early are not cancelled: cancelling one that is just finishing ends Ray's
        # driver on the spot (a failed check in its task manager). They end with the models they ask, or the driver.
        pool = self._pool("backbone")
        streams = [_replay_task.options(max_retries=TASK_RETRIES).remote(pool, part, program) for part in _pack(groups)]
        alone_s = 0.0
        try:
            while streams:
                ready, _ = ray.wait(streams, num_returns=1, timeout=LOOK_S, fetch_local=False)
                alone_s = 0.0 if ready or ray.cluster_resources().get("CPU", 0) >= 1 else alone_s + LOOK_S
                if alone_s > pool.patience_s:
                    raise ModelError("no node is left in the cluster that can run replays")
                if not ready:
                    continue
                stream = ready[0]
                try:
                    yield ray.get(next(stream))
                except StopIteration:
                    streams.remove(stream)
        except RayTaskError as error:
            raise _cause(error) from error  # Ray's error shows where in the task it was raised
        except RayError as error:
            raise ModelError(f"the Ray cluster failed: {_line(error)}") from error

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """See `Executor.run`."""
        return asyncio.run(work)

    def close(self) -> None:
        """End the actors, and Ray if this executor started it."""
        for pool in self._pools.values():
            pool.stop()
        self._pools.clear()
        if self._owns_ray and ray.is_initialized():
            ray.shutdown()

    def _pool(self, role: str) -> ActorPool:
        if role not in self._pools:
            if self._shares is None:  # once: what a model holds already must not be shared out again
                gpus = int(ray.cluster_resources().get("GPU", 0))
                self._shares = GpuShares.of(gpus, local_backbone=served_here(self._specs.backbone))
            shares = self._shares
            if role == "backbone":
                share = SHARED_GPU if 0 < shares.backbone < 1 else None
                specs = replace(self._specs, vllm=replace(self._specs.vllm, gpu_memory_share=share))
                pool = start_actors(
                    GeneratorActor, specs, replicas=self._replicas or shares.replicas, gpus=shares.backbone
                )
            else:
                actor = EntailmentActor if role == "nli" else EmbedderActor
                pool = start_actors(actor, self._specs, gpus=shares.small)
            self._pools[role] = pool
        return self._pools[role]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShares:
    """Who gets which part of a cluster's GPUs, as Ray counts them.

    Whatever starts first, all fit: a model that waits for a GPU that another one holds would wait for ever.
    """

    backbone: float
    """Of one replica."""

    replicas: int
    small: float
    """Of the NLI model, and of the embedder."""

    @staticmethod
    def of(gpus: int, *, local_backbone: bool) -> GpuShares:
        """Share out the GPUs of a cluster.

        Args:
            gpus: How many there are.
            local_backbone: Whether the backbone is served here; one behind a URL needs none.
        """
        if not gpus:
            return GpuShares(backbone=0.0, replicas=1, small=0.0)
        if not local_backbone:
            return GpuShares(backbone=0.0, replicas=1, small=0.5)
        if gpus == 1:
            return GpuShares(backbone=SHARED_GPU, replicas=1, small=0.1)
        return GpuShares(backbone=1.0, replicas=gpus - 1, small=0.5)  # one is for the small models


def _only(groups: Sequence[ReplayGroup], wanted: set[str]) -> list[ReplayGroup]:
    """Return the groups with only the questions wanted, without those that have none left."""
    cut = (
        replace(group, questions=tuple(asked for asked in group.questions if asked.ablation.pair_id in wanted))
        for group in groups
    )
    return [group for group in cut if group.questions]


def _pack(groups: Sequence[ReplayGroup]) -> Iterator[list[ReplayGroup]]:
    """Cut the round into tasks: whole events, adjacent as planned."""
    part: list[ReplayGroup] = []
    size = 0
    for group in groups:
        part.append(group)
        size += len(group.questions)
        if size >= REPLAYS_PER_TASK:
            yield part
            part, size = [], 0
    if part:
        yield part


@ray.remote(num_cpus=1, num_returns="streaming")  # type: ignore[untyped-decorator]
def _replay_task(pool: ActorPool, groups: list[ReplayGroup], program: Program) -> Any:
    loop = asyncio.new_event_loop()
    try:
        yield from stream_outcomes(groups, program, lambda event_id: RemoteGenerator(pool, group=event_id), loop)
    finally:
        loop.close()


def _reach(address: str) -> None:
    """Raise ConnectionError where no gRPC server listens at HOST:PORT; what other addresses mean is for Ray to say.

    A server that encrypts is only seen to be there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S) as peer:
            if os.environ.get("RAY_USE_TLS", "0").lower() in {"1", "true"}:
                return
            peer.sendall(_HELLO)
            with peer.makefile("rb") as answers:
                greeting = answers.read(len(_SETTINGS))
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"nothing answers there ({error})") from None
    if greeting[3:4] != _SETTINGS[3:4]:
        raise ConnectionError("what answers there is no Ray head, whose port is 6379 unless it was told another")


@contextmanager
def _own_termination() -> Iterator[None]:
    """Keep what the process does on SIGTERM: Ray's driver would end with exit code 1, and a dump of its stack."""
    if threading.current_thread() is not threading.main_thread():  # signals are set there alone, by Ray too
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _cause(error: RayTaskError) -> Exception:
    """Return what the task raised: a defect in the user's agent stays one, as starting again would only meet it again.

    What Ray raised within the task says that a process or a machine was lost.
    """
    if isinstance(error.cause, Exception) and not isinstance(error.cause, RayError):
        return error.cause
    return ModelError(f"a replay task failed: {_line(error)}")


def _line(error: BaseException) -> str:
    if isinstance(error, OutOfMemoryError):  # Ray's own text is fifty lines about the node
        return "a machine ran out of memory"
    return " ".join(str(error).split())[-300:]
