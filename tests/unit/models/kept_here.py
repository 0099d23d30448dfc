"""Replicas of one model on the Ray of these tests, which has one node."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from memory_audit.models.services.keeper import Keeper
from memory_audit.models.services.places import Place
from memory_audit.models.services.replicas import Replicas

if TYPE_CHECKING:
    from memory_audit.models.loading import ModelSpecs

DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class ThisReplica:
    handle: Any

    def process_id(self) -> int:
        return ray.get(self.handle.__ray_call__.remote(lambda _: os.getpid()))  # type: ignore[no-any-return]


class Here:
    """Replicas that are kept on this node until `close`."""

    def __init__(self, actor: type, specs: ModelSpecs, replicas: int = 1, gpus: float = 0) -> None:
        self.wanted = replicas
        node = ray.get_runtime_context().get_node_id()
        self.keeper = Keeper(lambda _role: [Place(node, number) for number in range(self.wanted)])
        try:
            self.pool = self.keeper.start("backbone", actor, specs, gpus=gpus)
        except BaseException:
            self.keeper.close()
            raise
        self.replicas = Replicas(self.pool)

    def all_there(self) -> list[ThisReplica]:
        """Wait until all are there; in the order in which they are asked."""
        deadline = time.monotonic() + DEADLINE_S
        while len(there := self.replicas.there()) != self.wanted:
            assert time.monotonic() < deadline, there
            self.replicas._look_at_s = 0.0
            time.sleep(0.05)
        return [ThisReplica(replica.handle) for replica in there]

    def close(self) -> None:
        self.keeper.close()
