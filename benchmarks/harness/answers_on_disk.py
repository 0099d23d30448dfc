"""A backbone whose answers are kept on disk, so that a study resumes after a stop and its tables share replays.

An answer is the model's own, to exactly this request, from exactly these weights; nothing is made up and nothing is
shared between models. Token counts are kept as they were when the answer was computed.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from memory_audit.generation import Completion, GenerationRequest, TokenLogprob, TokenUsage
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.models.backbone.generator_vllm import VllmSettings
from memory_audit.models.loading import ModelSpecs, backbone_id, load_generator
from memory_audit.models.weights.cache import cache_dir

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.models.protocols import Generator

__all__ = ["AnswersOnDisk", "study_executor"]


class AnswersOnDisk:
    """Implements `memory_audit.models.protocols.Generator` in front of another one, which is started when first needed.

    Args:
        path: The database; made if absent.
        start: Starts the backbone.
        model_id: Name of the weights that `start` serves: answers of other weights are never used.
    """

    def __init__(self, path: Path, start: Any, model_id: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.model_id = model_id
        self._start = start
        self._generator: Generator | None = None
        self._database = sqlite3.connect(path, timeout=60.0)
        # Safe against a killed process; only a crash of the machine may lose the last answers, which are asked again.
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = normal")
        self._database.execute("create table if not exists answers (key text primary key, answer text)")
        self._waiting: dict[str, asyncio.Future[Completion]] = {}
        self.computed = 0
        """Requests that the backbone really answered in this process."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request."""
        key = f"{self.model_id}/{request.digest()}"
        row = self._database.execute("select answer from answers where key = ?", (key,)).fetchone()
        if row is not None:
            return _unpack(row[0])
        if key in self._waiting:
            return await self._waiting[key]
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting[key] = future
        try:
            if self._generator is None:
                self._generator = self._start()
            answer = await self._generator.generate(request)
        except BaseException as error:
            if not future.done():
                future.set_exception(error)
                future.exception()
            raise
        finally:
            self._waiting.pop(key, None)
        future.set_result(answer)
        self.computed += 1
        with self._database:
            self._database.execute("insert or ignore into answers values (?, ?)", (key, _pack(answer)))
        return answer

    async def close(self) -> None:
        """Close the backbone, if it was started, and the database."""
        if self._generator is not None:
            await self._generator.close()
        self._database.close()


def study_executor(
    backbone: str, *, kv_gib: int = 2, max_model_len: int = 4_096
) -> tuple[LocalExecutor, AnswersOnDisk]:
    """Return a local executor whose backbone keeps its answers in the user's cache, and that backbone."""
    settings = VllmSettings(kv_cache_gib=kv_gib, max_model_len=max_model_len, max_num_seqs=64)
    specs = ModelSpecs(backbone=backbone, vllm=settings)
    generator = AnswersOnDisk(cache_dir() / "answers.sqlite", lambda: load_generator(specs), backbone_id(backbone))
    return LocalExecutor(specs, generator=generator, closes_generator=True), generator


def _pack(answer: Completion) -> str:
    packed: str = json.dumps([
        answer.text, answer.finish_reason, *astuple(answer.usage),
        [[[item.text, item.logprob_nats] for item in position] for position in answer.top],
    ])  # fmt: skip
    return packed


def _unpack(blob: str) -> Completion:
    text, reason, prompt, cached, completion, top = json.loads(blob)
    return Completion(
        text=text, finish_reason=reason,
        usage=TokenUsage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion),
        top=tuple(
            tuple(TokenLogprob(text=token, logprob_nats=logprob) for token, logprob in position) for position in top
        ),
    )  # fmt: skip
