"""Ask a backbone each question once: a memo in front of a Generator, keyed by the request's digest."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_audit.generation import TokenUsage

if TYPE_CHECKING:
    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.models.protocols import Generator

__all__ = ["MemoGenerator"]


@dataclass(slots=True)
class _Asked:
    """A question whose answer is there or on its way."""

    task: asyncio.Task[Completion]
    waiting: int = 0
    """Callers. The task ends with the last of them, as a request does whose caller is cancelled."""


class MemoGenerator:
    """Implements `protocols.Generator`; equal requests share one answer, also while it is being computed.

    Only deterministic requests are shared: greedy ones, and sampled ones since their seed is part of the digest. A
    shared answer costs nothing, so it comes back with all token counts zero.
    """

    def __init__(self, generator: Generator) -> None:
        self.model_id = generator.model_id
        self._generator = generator
        self._answers: dict[str, _Asked] = {}

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; a failure is not remembered. Who is cancelled leaves the answer to the others."""
        return (await self.ask(request))[0]

    async def ask(self, request: GenerationRequest) -> tuple[Completion, bool]:
        """Answer one request like `generate`, and tell whether the answer is shared: many servers count no tokens."""
        key = request.digest()
        known = self._answers.get(key)
        if known is not None:
            answer = await self._wait(key, known)
            return replace(answer, usage=TokenUsage()), True
        asked = self._answers[key] = _Asked(asyncio.ensure_future(self._generator.generate(request)))
        return await self._wait(key, asked), False

    async def _wait(self, key: str, asked: _Asked) -> Completion:
        asked.waiting += 1
        try:
            return await asyncio.shield(asked.task)
        except (KeyboardInterrupt, SystemExit):
            # Raised in the task, it has left the loop: raised here too, it would end the loop's cleaning up.
            raise asyncio.CancelledError from None
        finally:
            asked.waiting -= 1
            task = asked.task
            unwanted = asked.waiting == 0 and not task.done()
            if unwanted or task.cancelled() or (task.done() and task.exception() is not None):
                self._drop(key, asked)
            if unwanted:
                task.cancel()
                await asyncio.wait([task])  # nobody else would, and a loop that ends before it leaves it pending

    def _drop(self, key: str, asked: _Asked) -> None:
        if self._answers.get(key) is asked:  # the first of those who wait has done it, and somebody may ask anew
            del self._answers[key]

    async def close(self) -> None:
        """Close the backbone."""
        await self._generator.close()
