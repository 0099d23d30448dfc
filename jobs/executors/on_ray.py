"""The executor on a Ray cluster: actors host the models, and tasks do works that ask them.

Life of an audit: the driver hands out works, groups of tenants, as tasks, some more at a time than the cluster has
CPUs. A task opens what its group needs of the store, asks the actors, writes what it learns into the run folder, and
sends back which files these are. Ray places it where there is room for the memory that it says it takes.

What a lost node costs, by what was on it:

    tasks   Ray repeats a task from its start, TASK_RETRIES times, and it finds on disk what it had been told. A work
            whose process ends each time comes to its failure, and the others go on.
    models  Other replicas answer meanwhile, and a node that comes gets replicas of its own
            (`memory_audit.models.services`). Where only the engine of a replica died, its process is started anew.
    head    Nothing goes on without it. Ray ends the driver, with exit code 1 and a line of its own, within a minute of
            losing the head; a driver on the head goes with it.

Where nothing takes the place of what was lost within `memory_audit.models.services.replicas.PATIENCE_S`, the run stops
with a ModelError. After that, as after the head's loss, the run folder is the resume: the same command, given again,
continues.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from memory_audit.errors import ModelError, UsageError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.models.backbone.generator_vllm import SHARED_GPU
from memory_audit.models.loading import OPENAI_PREFIX, served_here
from memory_audit.models.services.actors import EmbedderActor, EntailmentActor, GeneratorActor
from memory_audit.models.services.keeper import Keeper
from memory_audit.models.services.losses import what_is_full
from memory_audit.models.services.places import GpuShares, places
from memory_audit.models.services.remote import RemoteEmbedder, RemoteEntailment, RemoteGenerator
from memory_audit.models.services.replicas import PATIENCE_S, Replicas

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.jobs.executors.executor import Work
    from memory_audit.models.loading import ModelSpecs
    from memory_audit.models.protocols import Embedder, EntailmentModel, Generator
    from memory_audit.models.services.places import Place, Role
    from memory_audit.models.services.replicas import ActorPool

__all__ = ["RayExecutor"]

T = TypeVar("T")

VERSION = installed("memory-audit")

TASK_RETRIES = 3

WAITING = 2
"""Tasks at hand for each CPU of the cluster: one at work, and one that is next, which an autoscaler sees."""

SPARE = 0.8
"""Share of the largest node's memory that a work may be said to take: what takes more is tried there all the same."""

CONNECT_S = 10.0
"""How long a cluster's head may take to answer; Ray by itself goes on trying for longer than anybody waits."""

_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS
"""How HTTP/2, which gRPC speaks, is begun (RFC 9113, sec. 3.4): by either side with a frame of settings, type 4."""

LOOK_S = 5.0
"""How often a driver that waits looks whether any node is left that could do what it waits for."""


class _OnPools(LocalExecutor):
    """An executor whose models are pools of actors; a backbone behind a URL needs none, and is asked from here."""

    def __init__(self, specs: ModelSpecs) -> None:
        super().__init__(specs)
        self._homes: dict[str, int] = {}
        self._replicas: dict[Role, Replicas] = {}

    def _pool(self, role: Role) -> ActorPool:
        raise NotImplementedError

    def _of(self, role: Role) -> Replicas:
        if role not in self._replicas:
            self._replicas[role] = Replicas(self._pool(role))
        return self._replicas[role]

    @property
    def backbone(self) -> Generator:
        """See `Executor.backbone`."""
        return super().backbone if _behind_url(self._specs) else RemoteGenerator(self._of("backbone"))

    @property
    def embedder(self) -> Embedder:
        """See `Executor.embedder`; its replicas say its id, so asking for it starts them."""
        return RemoteEmbedder(self._of("embedder"))

    @property
    def entailment(self) -> EntailmentModel:
        """See `Executor.entailment`; as `embedder`."""
        return RemoteEntailment(self._of("nli"))

    def _serving(self, event_id: str) -> Generator:
        """Return what answers all questions of an event: one replica, and each gets as many events."""
        if _behind_url(self._specs):
            return super().backbone
        home = self._homes.setdefault(event_id, len(self._homes) or crc32(event_id.encode()))
        return RemoteGenerator(self._of("backbone"), home=home)


class _InTask(_OnPools):
    """What a task asks, which its driver started and will end."""

    def __init__(self, specs: ModelSpecs, pools: Mapping[Role, ActorPool]) -> None:
        super().__init__(specs)
        self._pools = pools

    def _pool(self, role: Role) -> ActorPool:
        return self._pools[role]


class RayExecutor(_OnPools):
    """Implements `memory_audit.jobs.executors.executor.Executor`.

    Args:
        specs: The models.
        address: `None` starts Ray on this machine and ends it on close; otherwise the cluster's address.
        replicas: Backbone replicas; 0 is as many as there are places for (`memory_audit.models.services.places`).
    """

    on_cluster = True

    def __init__(self, specs: ModelSpecs, *, address: str | None = None, replicas: int = 0) -> None:
        super().__init__(specs)
        self.machine = address or self.machine
        self._most = replicas
        self._keeper = Keeper(self._places)
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

    def each(self, works: Sequence[Work[T]]) -> Iterator[T]:
        """See `Executor.each`; each work is a task, those given first are begun first."""
        if not works:
            return
        parts = {part for work in works for part in work.parts}
        if _behind_url(self._specs):
            parts.discard("backbone")
        pools = {part: self._of(part).pool for part in sorted(parts)}
        waiting = deque(works)
        tasks: dict[Any, Work[T]] = {}
        alone_s = 0.0
        # Tasks that are left when this ends early are not cancelled: cancelling one that is just finishing ends Ray's
        # driver on the spot (a failed check in its task manager). They end with the models they ask, or the driver.
        while waiting or tasks:
            cpus = ray.cluster_resources().get("CPU", 0)
            while waiting and len(tasks) < max(WAITING * cpus, 1):
                work = waiting.popleft()
                memory = min(work.memory_bytes, int(SPARE * _largest_memory_bytes()))
                sent = _sent(_shared_out(self._specs, cpus), work)
                try:
                    task = _task.options(memory=memory, max_retries=TASK_RETRIES).remote(pools, sent)
                except RayError as error:
                    raise ModelError(f"a task cannot be handed out: {_line(error)}") from error
                tasks[task] = work
            ready, _ = ray.wait(list(tasks), num_returns=1, timeout=LOOK_S)
            alone_s = 0.0 if ready or cpus >= 1 else alone_s + LOOK_S
            if alone_s > PATIENCE_S:
                raise ModelError("no node is left in the cluster that can run replays")
            for task in ready:
                yield _result(task, tasks.pop(task))

    def close(self) -> None:
        """End the actors, and Ray if this executor started it."""
        super().close()
        self._replicas.clear()
        if ray.is_initialized():
            self._keeper.close()
            if self._owns_ray:
                ray.shutdown()

    def _pool(self, role: Role) -> ActorPool:
        if self._shares is None:  # once: what a replica takes stays what it takes
            gpus = int(ray.cluster_resources().get("GPU", 0))
            self._shares = GpuShares.of(gpus, local_backbone=served_here(self._specs.backbone))
        shares, specs = self._shares, self._specs
        if role != "backbone":
            actor: type = EntailmentActor if role == "nli" else EmbedderActor
            return self._keeper.start(role, actor, specs, gpus=shares.small)
        share = SHARED_GPU if 0 < shares.backbone < 1 else None
        specs = replace(specs, vllm=replace(specs.vllm, gpu_memory_share=share))
        return self._keeper.start(role, GeneratorActor, specs, gpus=shares.backbone)

    def _places(self, role: Role) -> Sequence[Place]:
        shares = self._shares or GpuShares.of(0, local_backbone=False)
        return places(self._nodes(), shares, replicas=self._most, kept=self._keeper.kept("nli"))[role]

    def _nodes(self) -> Mapping[str, Mapping[str, float]]:
        """Return the resources of each node that models can be on."""
        return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
def _task(pools: Mapping[Role, ActorPool], sent: bytes) -> Any:
    return _done(sent, pools)


def _done(sent: bytes, pools: Mapping[Role, ActorPool]) -> Any:
    """Do a work; what it depends on is opened here, so that what is wrong with that is an error of the task."""
    version, specs, work = pickle.loads(sent)  # noqa: S301 - from the driver of this cluster
    if version != VERSION:
        raise UsageError(f"a node has memory-audit {VERSION}, the driver {version}: install the same on all")
    executor = _InTask(specs, pools)
    try:
        return pickle.loads(work)(executor)  # noqa: S301
    finally:
        executor.close()


def _behind_url(specs: ModelSpecs) -> bool:
    return specs.backbone.startswith(OPENAI_PREFIX)


def _shared_out(specs: ModelSpecs, tasks: float) -> ModelSpecs:
    """Return what each of so many tasks is told of the models: all together open as many connections as one process."""
    connections = max(1, specs.http.connections // max(1, int(tasks)))
    return replace(specs, http=replace(specs.http, connections=connections))


def _largest_memory_bytes() -> float:
    """Return the memory of the largest node that tasks can be on."""
    found = (node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1)
    return max((resources.get("memory", 0.0) for resources in found), default=0.0)


def _sent(specs: ModelSpecs, work: Work[Any]) -> bytes:
    return pickle.dumps((VERSION, specs, pickle.dumps(work)))


def _result(task: Any, work: Work[T]) -> T:
    """Return what a task came to; one whose process ended each time has failed, and no other has."""
    try:
        found: T = ray.get(task)
    except RayTaskError as error:
        raise _cause(error) from error  # Ray's error shows where in the task it was raised
    except RayError as error:
        return work.failed(ModelError(f"its process ended, {TASK_RETRIES + 1} times: {_line(error)}"))
    return found


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
    return ModelError(f"a task failed: {_line(error)}")


def _line(error: BaseException) -> str:
    if isinstance(error, OutOfMemoryError):  # Ray's own text is fifty lines about the node
        return "a machine ran out of memory"
    return what_is_full(error) or " ".join(str(error).split())[-300:]
