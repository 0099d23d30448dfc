"""Keeps the replicas of a run's models on the places that its cluster has for them, as nodes come and go.

A replica belongs to its place. It ends with the node, and a node that comes gets one of its own: how often machines are
lost, told before or not, is nowhere counted. A process that ends on a machine that lives is started anew there by Ray,
RESTARTS times. (Ray's own count passes over nodes that were drained for preemption, and not over those that are just
gone.) One that says nothing for HEALTH_S is ended as if it had ended itself.

On a machine without GPUs actors ask Ray for no CPU: the engine's threads fill the cores anyway, and tasks that only
wait for it must still be scheduled.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from memory_audit.errors import ModelError
from memory_audit.models.services.actors import CONCURRENT_CALLS, HEALTH
from memory_audit.models.services.losses import FOR_GOOD, LOST, as_model_error
from memory_audit.models.services.replicas import LOOK_S, PATIENCE_S, ActorPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_audit.models.loading import ModelSpecs
    from memory_audit.models.services.places import Place, Role

__all__ = ["RESTARTS", "Keeper"]

RESTARTS = 2
"""Times that Ray starts one replica anew on its machine: a model whose process ends a third time does not fit there, or
is asked what ends its engine, and would be started for ever."""

START_S = 3_600.0
"""How long a first replica may take to find a place and load its model, which may have to be downloaded first."""

HEALTH_S = 300.0
"""How long a process that was there may say nothing; while it computes or loads it answers at once."""


class Keeper:
    """Starts, watches and ends replicas; a thread of its own looks at the cluster every LOOK_S.

    Args:
        places: Where replicas of a role are to be, as the cluster is now.
    """

    def __init__(self, places: Callable[[Role], Sequence[Place]]) -> None:
        self._places = places
        self._kept: dict[Role, _Kept] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="replicas", daemon=True)

    def start(self, role: Role, actor: type, specs: ModelSpecs, *, gpus: float = 0) -> ActorPool:
        """Start the replicas of one model, and wait until the first has loaded it; the others join as they do.

        Args:
            role: Of the model.
            actor: `GeneratorActor`, `EntailmentActor` or `EmbedderActor`.
            specs: Which models; each actor takes its own.
            gpus: Of one replica, as Ray counts them (0.1 is a share); 0 on machines without any.

        Raises:
            UsageError: a specification that cannot be meant.
            ModelError: a model that cannot be loaded, or finds no place.
        """
        kept = _Kept(role, actor, specs, gpus)
        with self._lock:
            self._kept[role] = kept
        if not self._thread.is_alive():
            self._thread.start()
        try:
            model_id = self._first_word(kept)
        except BaseException:
            with self._lock:
                del self._kept[role]
                kept.fit(())
            raise
        return ActorPool(name=kept.name, model_id=model_id, patience_s=PATIENCE_S)

    def fit(self) -> None:
        """Start what the cluster has places for, and end what has lost its own or does not answer."""
        with self._lock:
            for role, kept in self._kept.items():
                kept.fit(self._places(role))

    def kept(self, role: Role) -> list[Place]:
        """Return where replicas of a role are."""
        return list(self._kept[role].replicas) if role in self._kept else []

    def close(self) -> None:
        """End all replicas. Idempotent."""
        self._ended.set()
        with self._lock:
            for kept in self._kept.values():
                kept.fit(())
            self._kept.clear()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            with contextlib.suppress(Exception):  # a head that is busy is asked again; one that is lost ends the run
                self.fit()

    def _first_word(self, kept: _Kept) -> str:
        """Return the model id that the first of the replicas serves."""
        deadline_s = time.monotonic() + START_S
        words: dict[Any, Any] = {}  # what will be each one's word, by its handle
        failed: dict[Any, RayError] = {}
        while time.monotonic() < deadline_s:
            self.fit()
            there = list(kept.replicas.values())
            if there and all(handle in failed for handle in there):
                raise as_model_error(failed[there[0]], kept.title)
            for handle in there:
                if handle not in failed and handle not in words:
                    words[handle] = handle.model_id.remote()
            if not words:
                time.sleep(min(LOOK_S, 1.0))
                continue
            ready, _ = ray.wait(list(words.values()), timeout=max(0.0, min(LOOK_S, deadline_s - time.monotonic())))
            for handle in [handle for handle, word in words.items() if word in ready]:
                try:
                    model_id: str = ray.get(words.pop(handle))
                except RayError as error:
                    if not isinstance(error, LOST) or isinstance(error, FOR_GOOD):
                        failed[handle] = error
                    else:
                        time.sleep(0.1)  # it is being started anew, and is asked again
                else:
                    return model_id
        free, all_gpus = (found.get("GPU", 0) for found in (ray.available_resources(), ray.cluster_resources()))
        raise ModelError(
            f"no replica of {kept.title:.80} started within {START_S:.0f} s: "
            f"{free:g} of the cluster's {all_gpus:g} GPUs are free; make room for it"
        )


class _Kept:
    """The replicas of one model."""

    def __init__(self, role: Role, actor: type, specs: ModelSpecs, gpus: float) -> None:
        self.name = f"{role}-{uuid4().hex[:12]}"  # actors of other runs of this driver may be there
        self.title = specs.backbone if role == "backbone" else actor.__name__
        self.replicas: dict[Place, Any] = {}
        self._numbers = itertools.count()
        self._asked: dict[Place, tuple[Any, float]] = {}
        self._heard: set[Place] = set()
        self._options: dict[str, Any] = {
            "num_cpus": 0, "num_gpus": gpus, "max_restarts": RESTARTS, "max_concurrency": CONCURRENT_CALLS,
        }  # fmt: skip
        if not gpus:  # Ray gives an actor without CPUs one thread; ours compute, one kind at a time
            self._options["runtime_env"] = {"env_vars": {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}}
        remote: Any = ray.remote(concurrency_groups={HEALTH: CONCURRENT_CALLS})
        self._actor = remote(actor)
        self._specs = specs

    def fit(self, places: Sequence[Place]) -> None:
        for place in self.replicas.keys() - set(places):
            with contextlib.suppress(RayError):
                ray.kill(self.replicas.pop(place))
            self._asked.pop(place, None)
            self._heard.discard(place)
        for place in places:
            if place in self.replicas:
                self._look_after(place)
            else:
                self.replicas[place] = self._actor.options(
                    name=f"{self.name}/{place.node}/{next(self._numbers)}",
                    scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
                    **self._options,
                ).remote(self._specs)

    def _look_after(self, place: Place) -> None:
        """Ask a replica whether it is there, and end a process that has not said so for too long."""
        handle, now_s = self.replicas[place], time.monotonic()
        if place not in self._asked:
            self._asked[place] = handle.is_there.remote(), now_s
            return
        word, asked_s = self._asked[place]
        if ray.wait([word], timeout=0)[0]:  # also where it died: then Ray starts it anew, or gives it up
            del self._asked[place]
            self._heard.add(place)
        elif place in self._heard and now_s - asked_s > HEALTH_S:
            del self._asked[place]
            self._heard.discard(place)
            ray.kill(handle, no_restart=False)
