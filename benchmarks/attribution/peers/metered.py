"""A backbone that counts what one method costs.

Answers that a method asks for come from the answers on disk that the studies share, or, on demand, all anew from the
backbone itself. Both are counted as if computed: an answer on disk keeps the token counts of when it was. The prefix
cache is emptied when a method begins. Equal requests of one method are asked once.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.harness.answers_on_disk import AnswersOnDisk
from memory_audit.generation import TokenUsage
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.models.backbone.generator_vllm import VllmSettings
from memory_audit.models.backbone.memo import MemoGenerator
from memory_audit.models.loading import ModelSpecs, backbone_id, load_generator
from memory_audit.models.weights.cache import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.models.protocols import Generator

__all__ = ["Cost", "MeteredBackbone", "metered_executor"]


@dataclass(slots=True, kw_only=True)
class Cost:
    """What a method cost."""

    calls: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)
    seconds: float | None = None
    """None where any answer came from disk: unknown is not zero."""

    @property
    def computed_tokens(self) -> int:
        """Tokens that went through the model."""
        return self.usage.prompt_tokens - self.usage.cached_tokens + self.usage.completion_tokens

    def row(self) -> dict[str, Any]:
        """Return the columns of a result."""
        return {
            "calls": self.calls, **asdict(self.usage), "computed_tokens": self.computed_tokens,
            "seconds": None if self.seconds is None else round(self.seconds, 2),
        }  # fmt: skip

    def __add__(self, other: Cost) -> Cost:
        """Add what two models did; their seconds, which may have passed together, are not added."""
        return Cost(
            calls=self.calls + other.calls, usage=self.usage + other.usage
        )  # fmt: skip


class MeteredBackbone:
    """Implements `memory_audit.models.protocols.Generator`.

    Args:
        path: The answers on disk.
        start: Starts the backbone; called when it is first needed.
        model_id: Name of the weights that `start` serves.
    """

    def __init__(self, path: Path, start: Callable[[], Generator], model_id: str) -> None:
        self.model_id = model_id
        self._start = start
        self._raw: Generator | None = None
        self._disk = AnswersOnDisk(path, self._backbone, model_id)
        self._method: MemoGenerator | None = None
        self._cost = Cost()
        self._began = 0.0
        self._computed_before = 0
        self._fresh = False
        self._alone = False
        self._to_reset = False
        self._resetting = asyncio.Lock()

    def begin(self, *, fresh: bool, alone: bool = False) -> None:
        """Start counting for one method.

        Args:
            fresh: Compute every answer, also one that lies on disk.
            alone: One request at a time, each from an empty prefix cache; fresh only.
        """
        self._cost, self._fresh, self._alone, self._to_reset = Cost(), fresh, fresh and alone, True
        self._method = MemoGenerator(_Counted(self))
        self._computed_before = self._disk.computed
        self._began = time.perf_counter()

    def end(self) -> Cost:
        """Stop counting; afterwards answers come from disk where they are there, and count for nobody."""
        if self._fresh or self._disk.computed - self._computed_before == self._cost.calls:
            self._cost.seconds = time.perf_counter() - self._began
        self._method = None
        return self._cost

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request."""
        return await (self._disk if self._method is None else self._method).generate(request)

    async def close(self) -> None:
        """Close the backbone, if it was started, and the database."""
        await self._disk.close()
        if self._raw is not None:
            await self._raw.close()
            self._raw = None

    async def answer_counted(self, request: GenerationRequest) -> Completion:
        """Answer one request of the method under way."""
        async with self._resetting:
            if (self._to_reset or self._alone) and self._raw is not None:
                reset = getattr(self._raw, "reset_prefix_cache", None)
                if reset is not None:
                    await reset()
            self._to_reset = False
            answer = await self._backbone().generate(request) if self._alone else None
        if answer is None:
            answer = await (self._backbone() if self._fresh else self._disk).generate(request)
        self._cost.calls += 1
        self._cost.usage += answer.usage
        return answer

    def _backbone(self) -> Generator:
        if self._raw is None:
            began = time.perf_counter()
            self._raw = self._start()
            self._began += time.perf_counter() - began  # its start is nobody's cost
        return self._raw


class _Counted:
    """The side of the backbone that a method's memo asks."""

    def __init__(self, meter: MeteredBackbone) -> None:
        self.model_id = meter.model_id
        self._meter = meter

    async def generate(self, request: GenerationRequest) -> Completion:
        return await self._meter.answer_counted(request)

    async def close(self) -> None:
        """Nothing of its own to close."""


def metered_executor(backbone: str, *, kv_gib: int = 2) -> tuple[LocalExecutor, MeteredBackbone]:
    """Return a local executor over a metered backbone, with the studies' answers on disk, and that backbone."""
    specs = ModelSpecs(backbone=backbone, vllm=VllmSettings(kv_cache_gib=kv_gib, max_model_len=4_096, max_num_seqs=64))
    metered = MeteredBackbone(cache_dir() / "answers.sqlite", lambda: load_generator(specs), backbone_id(backbone))
    return LocalExecutor(specs, generator=metered, closes_generator=True), metered
