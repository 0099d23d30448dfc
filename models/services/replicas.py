"""The replicas of one model as any process of a run sees them: which are there, and which is asked next.

Replicas are named actors, `POOL/NODE/NUMBER`, and Ray's own list of names is the directory: who asks looks there at
intervals, so a task sees what came and went after it began. A replica is there once it said which weights it serves.

Life of a loss:

 1. What was not answered is asked of another replica, here and not by Ray, whose `max_task_retries` counts attempts and
    uses them up before a lost machine is noticed. Asking twice is safe: no model remembers what it was asked.
 2. A replica whose process ended is there again when its next process has loaded the model.
 3. Where none is there, a call waits for one, `patience_s` at most.
 4. A replica that died for good on a machine that lives is given up: it was started RESTARTS times. Where all are, the
    call is a ModelError at once. The run stops, and can be resumed.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from memory_audit.errors import ModelLostError
from memory_audit.models.services.losses import FOR_GOOD, LOST, raised

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["LOOK_S", "PATIENCE_S", "ActorPool", "Call", "Replica", "Replicas", "node_of"]

WINDOW = 128
"""Requests that one process has out at one replica: more than a few tasks need to keep it busy, so that what a cluster
of tasks has in a replica's memory is bounded by how many they are."""

PATIENCE_S = 900.0
"""How long a lost replica's place may stay empty: an autoscaler's new machine is up and installed in less. Nothing else
tells a cluster that has lost its last machine of a kind from one that is about to get the next."""

LOOK_S = 5.0
"""How often the directory is looked at."""

RETRY_S = 1.0
"""The same while no replica is there."""

FIRST_S = 0.5
"""How long a look waits for a first word of replicas, where none is there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPool:
    """Names the replicas of one model. Can be passed to Ray tasks."""

    name: str
    model_id: str
    patience_s: float = PATIENCE_S


@dataclass(eq=False, slots=True)
class Replica:
    """One that is there."""

    name: str
    handle: Any
    window: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WINDOW))


class Replicas:
    """The replicas of a pool; looks at the directory by itself. One instance belongs to one process."""

    def __init__(self, pool: ActorPool) -> None:
        self.pool = pool
        self.loss: RayError = ActorUnavailableError("no replica is there", None)
        """The last one."""

        self._there: dict[str, Replica] = {}
        self._asked: dict[str, tuple[Any, Any]] = {}  # handle, and what will be its word
        self._given_up: set[str] = set()
        self._places_lost = False
        self._look_at_s = 0.0

    def __reduce__(self) -> tuple[type[Replicas], tuple[ActorPool]]:
        """Send the names alone: another process looks for itself."""
        return Replicas, (self.pool,)

    def there(self) -> Sequence[Replica]:
        """Return the replicas that can be asked, in an order that all processes agree on."""
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look()
            self._look_at_s = now_s + (LOOK_S if self._there else RETRY_S)
        return [self._there[name] for name in sorted(self._there)]

    def lose(self, replica: Replica, loss: RayError) -> None:
        """Take note that a replica was lost; it is there again when it says so."""
        self.loss = loss
        if self._there.pop(replica.name, None) is not None and isinstance(loss, FOR_GOOD):
            self._bury(replica.name)
        self._look_at_s = 0.0

    def may_come(self) -> bool:
        """Tell whether there is hope for another replica than those that are there."""
        return bool(self._asked) or self._places_lost or not self._given_up

    def _look(self) -> None:
        prefix = f"{self.pool.name}/"
        names = {name for name in ray.util.list_named_actors() if name.startswith(prefix)}
        for name in names - self._there.keys() - self._asked.keys() - self._given_up:
            try:
                handle = ray.get_actor(name)
            except ValueError:  # gone since
                continue
            self._asked[name] = (handle, handle.model_id.remote())
        for name in self._there.keys() - names:
            del self._there[name]
        words = [word for _, word in self._asked.values()]
        if words:
            ray.wait(words, num_returns=len(words), timeout=0.0 if self._there else FIRST_S)
        for name in list(self._asked):
            self._hear(name)

    def _hear(self, name: str) -> None:
        """Take a replica's word, where it came."""
        handle, word = self._asked[name]
        if not ray.wait([word], timeout=0.0)[0]:
            return
        del self._asked[name]
        try:
            model_id = ray.get(word)
        except LOST as loss:  # asked again at the next look, if it is in the directory then
            self.loss = loss
            if isinstance(loss, FOR_GOOD):
                self._bury(name)
        except RayError as error:  # what it raised: it cannot load its model
            self.loss = error
            self._given_up.add(name)
        else:
            if model_id == self.pool.model_id:
                self._there[name] = Replica(name, handle)
            else:
                self._given_up.add(name)

    def _bury(self, name: str) -> None:
        """Say of one that died for good whether it went with its machine."""
        if any(node["Alive"] and node["NodeID"] == node_of(name) for node in ray.nodes()):
            self._given_up.add(name)
        else:
            self._places_lost = True


def node_of(name: str) -> str:
    """Return the id of the node that a replica's name says it is on."""
    return name.split("/")[1]


class Call:
    """One call on its way: which replica is asked next, and when that is given up."""

    __slots__ = ("_ends_s", "_replicas", "_unable")

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._unable: dict[str, RayError] = {}
        self._ends_s: float | None = None

    def replica(self, number: int) -> Replica | None:
        """Return the replica that is asked next, `number` modulo how many there are; None where none is there."""
        there = _without(self._replicas.there(), self._unable)
        return there[number % len(there)] if there else None

    def lost(self, replica: Replica, error: RayError) -> None:
        """Take note that a replica did not answer.

        Raises:
            RayError: it did, with an error of what was asked.
        """
        if isinstance(raised(error), ModelLostError):
            self._unable[replica.name] = error
        elif not isinstance(error, LOST):
            raise error
        self._replicas.lose(replica, error)

    def pause_s(self) -> float:
        """Return how long to wait before replicas are looked for again.

        Raises:
            RayError: none can come, or none has for long enough.
        """
        now_s = time.monotonic()
        if self._ends_s is None:
            self._ends_s = now_s + self._replicas.pool.patience_s
        if self._unable:
            raise next(iter(self._unable.values()))
        if not self._replicas.may_come():
            raise self._replicas.loss
        if now_s >= self._ends_s:
            raise ActorUnavailableError("no replica came", None)
        return RETRY_S


def _without(there: Sequence[Replica], unable: Collection[str]) -> Sequence[Replica]:
    return [replica for replica in there if replica.name not in unable] if unable else there
