"""Ask a backbone each question once: a memo in front of a Generator, keyed by the request's digest."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audit.generation import Completion, GenerationRequest
    from models.protocols import Generator

__all__ = ["MemoGenerator"]


class MemoGenerator:
    """Implements `models.protocols.Generator`; equal requests share one answer, also while it is being computed.

    Only deterministic requests are shared: greedy ones, and sampled ones since their seed is part of the digest. A
    shared answer costs nothing, so it comes back with all token counts zero.
    """

    def __init__(self, generator: Generator) -> None:
        self.model_id = generator.model_id
        self._generator = generator
        self._answers: dict[str, asyncio.Future[Completion]] = {}
        self.hits = 0
        self.misses = 0

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request; a failure is not remembered."""
        key = request.digest()
        known = self._answers.get(key)
        if known is not None:
            self.hits += 1
            return replace(await known, prompt_tokens=0, cached_tokens=0, completion_tokens=0)
        self.misses += 1
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._answers[key] = future
        try:
            answer = await self._generator.generate(request)
        except BaseException as error:
            del self._answers[key]
            if not future.done():
                future.set_exception(error)
                future.exception()  # retrieved: whoever waits gets it, and nobody else need
            raise
        future.set_result(answer)
        return answer

    async def close(self) -> None:
        """Close the backbone."""
        await self._generator.close()
