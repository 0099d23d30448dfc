"""The client sides, which make the replicas of a pool look like one model.

Life of a replay: a Ray task holds an event's whole group of requests; its `RemoteGenerator` sends them to one replica,
so that variants of one prompt meet in one prefix cache; the actor runs them concurrently in one vLLM engine. NLI pairs
and texts are cut into chunks that go to the replicas in turn. What is out at a replica is bounded, and the rest waits
where it is asked.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import RayError

from memory_audit.models.services.actors import ROWS
from memory_audit.models.services.losses import as_model_error
from memory_audit.models.services.replicas import Call
from memory_audit.models.services.retries import RETRIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.models.services.replicas import Replica, Replicas

__all__ = ["RemoteEmbedder", "RemoteEntailment", "RemoteGenerator"]

CHUNKS_OUT = 2
"""Chunks that one caller has out at each replica: one that is computed, and one that is next."""


class RemoteGenerator:
    """Implements `memory_audit.models.protocols.Generator` over the replicas of a pool.

    Args:
        replicas: Of the backbone.
        group: Name of what the requests have in common (an event id): all go to one replica, while it is there.
            Without it, a request goes by its first message, which variants of one conversation share.
        home: Number of the replica that all go to, modulo how many are there; None leaves it to `group`.
    """

    def __init__(self, replicas: Replicas, group: str = "", *, home: int | None = None) -> None:
        self.model_id = replicas.pool.model_id
        self._replicas, self._group, self._home = replicas, group, home

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; see `memory_audit.models.protocols.Generator`."""
        call, number = Call(self._replicas), self.number(request)
        try:
            while True:
                replica = call.replica(number)
                if replica is None:
                    await asyncio.sleep(call.pause_s())
                    continue
                try:
                    async with replica.window:
                        answer: Completion = await replica.handle.generate.remote(request, self.model_id)
                except RayError as error:
                    call.lost(replica, error)
                    RETRIES["backbone"] += 1
                else:
                    return answer
        except RayError as error:
            raise as_model_error(error, self.model_id) from error

    def number(self, request: GenerationRequest) -> int:
        """Return which replica answers, modulo how many are there: the same for all requests of a group."""
        key = self._group or request.messages[0].content
        return zlib.crc32(key.encode()) if self._home is None else self._home

    async def close(self) -> None:
        """Do nothing: the replicas end with the run that started them."""


class _RemoteRows:
    def __init__(self, replicas: Replicas) -> None:
        self.model_id = replicas.pool.model_id
        self._replicas = replicas

    def _rows(self, items: Sequence[Any]) -> NDArray[np.float32]:
        """Send chunks to the replicas in turn; rows are in the order given, and one empty chunk keeps the shape."""
        chunks = [list(items[start : start + ROWS]) for start in range(0, len(items), ROWS)] or [[]]
        sent: deque[_Chunk] = deque()
        answers = []
        try:
            for number, part in enumerate(chunks):
                while len(sent) >= CHUNKS_OUT * max(1, len(self._replicas.there())):
                    answers.append(sent.popleft().answer())
                sent.append(_Chunk(self._replicas, number, part))
            answers.extend(chunk.answer() for chunk in sent)
        except RayError as error:
            raise as_model_error(error, self.model_id) from error
        return np.concatenate(answers)


class _Chunk:
    """Pairs or texts that one replica is asked about."""

    def __init__(self, replicas: Replicas, number: int, part: list[Any]) -> None:
        self._call, self._number = Call(replicas), number
        self._asked = (part, replicas.pool.model_id)
        self._replica, self._answer = self._sent()

    def _sent(self) -> tuple[Replica, Any]:
        while (replica := self._call.replica(self._number)) is None:
            time.sleep(self._call.pause_s())
        return replica, replica.handle.rows.remote(*self._asked)

    def answer(self) -> NDArray[np.float32]:
        """Wait for the rows."""
        while True:
            try:
                found: NDArray[np.float32] = ray.get(self._answer)
            except RayError as error:
                self._call.lost(self._replica, error)
                RETRIES["small"] += 1
                self._replica, self._answer = self._sent()
            else:
                return found


class RemoteEntailment(_RemoteRows):
    """Implements `memory_audit.models.protocols.EntailmentModel` over the replicas of a pool."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `memory_audit.models.protocols.EntailmentModel`."""
        return self._rows(pairs)


class RemoteEmbedder(_RemoteRows):
    """Implements `memory_audit.models.protocols.Embedder` over the replicas of a pool."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see `memory_audit.models.protocols.Embedder`."""
        return self._rows(texts)
