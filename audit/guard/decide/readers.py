"""Drives a judgement: answers what it asks with the models of a guard, from a thread or from an event loop.

What computes (embedder, reader of behaviours, and the judgement's own comparing) runs in the calling thread, or beside
an event loop in one of its worker threads; what waits for a model's server is awaited on the model's own loop. Nothing
of that is known to the judgement (`memory_audit.guard.decide.judge`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from memory_audit.errors import ModelError, UsageError
from memory_audit.guard.blocks.behaviour import checked_features
from memory_audit.guard.decide.asks import Embed, ReadBehaviour, ReadHazards
from memory_audit.guard.decide.judge import error_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import BehaviourFeatures, BehaviourReader
    from memory_audit.guard.blocks.hazard import HazardSignature, Taxonomy
    from memory_audit.guard.blocks.key_table import KeyTable
    from memory_audit.guard.blocks.tombstone import Embed as EmbedTexts
    from memory_audit.guard.decide.asks import Ask, Steps
    from memory_audit.guard.decide.model_thread import ModelThread

__all__ = ["HazardExtractor", "Readers"]

T = TypeVar("T")

_READ_AT_ONCE = 64
"""Texts whose behaviours are read in one call: what a reader makes of one is large, and a batch of writes may be as
well."""


class HazardExtractor(Protocol):
    """Reads the hazards of texts with a model (`memory_audit.models.hazards.extraction`)."""

    model_id: str
    calibrated_for: str | None
    """Digest of the taxonomy in which its signatures tell `hazard_nats`; None or missing where they do in none."""

    async def extract(self, texts: Sequence[str], taxonomy: Taxonomy) -> tuple[HazardSignature | None, ...]:
        """Return each text's signature, in the order given; None where the model kept answering outside the schema.

        Raises:
            ModelError: the model cannot be asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Ended(Generic[T]):
    """A judgement came to its end."""

    result: T


class Readers:
    """The models of a guard. Thread-safe.

    Args:
        embed: Texts to unit vectors, shape (texts, dimensions).
        behaviours: Reads behaviours.
        extractor: Reads hazards; None where the mode reads none.
        taxonomies: Of the hazards.
        timeout_s: How long a judgement waits for the extractor.
        thread: Where the extractor runs, if several guards share one; its owner closes it.
    """

    def __init__(  # noqa: PLR0913 - three models, and how they are run
        self,
        *,
        embed: EmbedTexts,
        behaviours: BehaviourReader,
        extractor: HazardExtractor | None,
        taxonomies: Sequence[Taxonomy],
        timeout_s: float,
        thread: ModelThread | None = None,
    ) -> None:
        self._embed, self._behaviours, self._extractor, self._timeout_s = embed, behaviours, extractor, timeout_s
        self.taxonomies = {taxonomy.digest: taxonomy for taxonomy in taxonomies}
        self.calibrated_for: str | None = getattr(extractor, "calibrated_for", None)
        """Digest of the taxonomy in which hazards are told in nats; None where they are in none."""
        self._owns_thread = thread is None
        if thread is None:
            from memory_audit.guard.decide.model_thread import ModelThread  # noqa: PLC0415 - brings asyncio

            thread = ModelThread()
        self._thread = thread
        self._lock = threading.Lock()
        self.asked = 0
        """Texts that a model has read so far."""

    def run(self, steps: Steps[T]) -> T:
        """Drive a judgement to its end in this thread."""
        found = self._advance(steps, partial(next, steps))
        while not isinstance(found, _Ended):
            answer = partial(self._thread.run, self._extract(found), self._timeout_s)
            found = self._advance(steps, _reply(steps, answer))
        return found.result

    async def run_beside(self, steps: Steps[T]) -> T:
        """Drive a judgement to its end, and leave the event loop free meanwhile."""
        import asyncio  # noqa: PLC0415 - who has no event loop needs it not

        found = await asyncio.to_thread(self._advance, steps, partial(next, steps))
        while not isinstance(found, _Ended):
            work = partial(self._extract, found)
            try:
                step = partial(steps.send, await self._thread.wait(work, self._timeout_s))
            except Exception as error:  # noqa: BLE001 - the judgement decides
                step = partial(steps.throw, error)
            found = await asyncio.to_thread(self._advance, steps, step)
        return found.result

    def harms(self, texts: Sequence[str]) -> list[float]:
        """Return the log-odds in nats that what each text teaches is harmful.

        Raises:
            ModelError: the reader failed.
        """
        self._count(texts)
        found: list[float] = []
        for start in range(0, len(texts), _READ_AT_ONCE):
            part = texts[start : start + _READ_AT_ONCE]
            found += [reading.harm_nats for reading in checked_features(self._behaviours.read(part), len(part), 0)]
        return found

    def close(self) -> None:
        """End the thread that talks to the model. Idempotent."""
        if self._owns_thread:
            self._thread.close()

    def _advance(self, steps: Steps[T], step: Callable[[], Ask]) -> ReadHazards | _Ended[T]:
        """Take a step, and those after it, until one has to wait for the extractor."""
        try:
            while not isinstance(ask := step(), ReadHazards):
                step = _reply(steps, partial(self._compute, ask))
        except StopIteration as end:
            return _Ended(end.value)
        return ask

    def _compute(self, ask: Embed | ReadBehaviour) -> object:
        if isinstance(ask, Embed):
            return self._embed(ask.texts)
        self._count(ask.texts)
        answers: list[NDArray[np.float32] | str] = []
        for start in range(0, len(ask.texts), _READ_AT_ONCE):
            part = ask.texts[start : start + _READ_AT_ONCE]
            found = checked_features(self._behaviours.read(part), len(part), ask.behaviours.dimensions)
            stones = ask.stones[start : start + _READ_AT_ONCE]
            answers += map(partial(_held_against, self._behaviours, ask.behaviours), found, stones)
        return answers

    async def _extract(self, ask: ReadHazards) -> dict[str, tuple[HazardSignature | None, ...]]:
        if self._extractor is None:
            raise UsageError("no model to ask")
        self._count(ask.texts)
        answers = {}
        for digest in ask.taxonomies:
            found = await self._extractor.extract(ask.texts, self.taxonomies[digest])
            if len(found) != len(ask.texts):
                raise ModelError(f"{self._extractor.model_id:.80}: {len(found)} answers for {len(ask.texts)} texts")
            answers[digest] = found
        return answers

    def _count(self, texts: Sequence[str]) -> None:
        with self._lock:
            self.asked += len(texts)


def _reply(steps: Steps[T], answer: Callable[[], object]) -> Callable[[], Ask]:
    """Return the step that an answer makes: it is sent, or what was raised is thrown in."""
    try:
        return partial(steps.send, answer())
    except Exception as error:  # noqa: BLE001 - whatever a model raises, the judgement decides
        return partial(steps.throw, error)


def _held_against(
    reader: BehaviourReader, behaviours: KeyTable, reading: BehaviourFeatures, stones: NDArray[np.bool_]
) -> NDArray[np.float32] | str:
    """Hold a text against the behaviours of some tombstones; see `ReadBehaviour`."""
    mine = behaviours.owned_by(stones)
    vectors = behaviours.vectors if mine.all() else behaviours.vectors[mine]
    odds = np.full(len(mine), -np.inf, np.float32)
    if len(vectors):
        try:
            found = reader.log_odds(reading, vectors)
        except Exception as error:  # noqa: BLE001 - whatever a reader raises, the policy decides, and says so
            return error_line(error)
        if found.shape != (len(vectors),) or not np.isfinite(found).all():
            return f"the reader compared {len(vectors)} behaviours and gave {found.shape}, or what is no number"
        odds[mine] = found
    return behaviours.largest(odds, np.nan)
