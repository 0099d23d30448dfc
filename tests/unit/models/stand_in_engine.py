"""A stand-in for vLLM's engine: a process of its own on loopback, which can be killed, with the fake backbone in it.

`memory_audit.models.backbone.generator_vllm` talks to it as to vLLM, whose own errors it raises. A prompt with REFUSED
in it is invalid, one with BROKEN meets a defect of vLLM, and one with DEADLY ends the process.

    python -m tests.unit.models.stand_in_engine    what runs in the process: prints its port, and serves
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import site
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from memory_audit.generation import GenerationRequest, Message
from memory_audit.models.backbone.generator_vllm import VllmGenerator, VllmSettings
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.services.actors import GeneratorActor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from memory_audit.models.protocols import Generator

LIGHT = ("vllm", "vllm.v1", "vllm.v1.engine")
"""Packages of vLLM of which only some modules are imported here: all take many seconds."""

PREFIX = 256
"""Stands between the bytes of a prompt and those of its forced prefix, which are its tokens."""


class Tokenizer:
    def apply_chat_template(self, messages: list[dict[str, str]], **_options: object) -> list[int]:
        return list(json.dumps(messages).encode())

    def encode(self, text: str, **_options: object) -> list[int]:
        return [PREFIX, *text.encode()]


class Engine:
    """What is used of vLLM's AsyncLLM."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.models.stand_in_engine"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self._port = int(self.process.stdout.readline())

    @property
    def errored(self) -> bool:
        return self.process.poll() is not None

    async def generate(self, prompt: dict[str, list[int]], sampling: Any, _number: str) -> AsyncIterator[object]:
        from vllm.exceptions import VLLMValidationError  # noqa: PLC0415 - see light_vllm
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError  # noqa: PLC0415 - likewise

        if self.errored:
            raise EngineDeadError
        ids = prompt["prompt_token_ids"]
        asked, _, prefix = "".join(map(chr, ids)).partition(chr(PREFIX))
        if "REFUSED" in asked:
            raise VLLMValidationError("the decoder prompt cannot be that", parameter="prompt", value=7)
        if "BROKEN" in asked:
            raise EngineGenerateError from AssertionError("a defect")
        choices = sampling.structured_outputs.choice if sampling.structured_outputs else ()
        question = [asked, prefix, sampling.max_tokens, sampling.logprobs or 0, sampling.stop or [], choices]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(json.dumps(question).encode() + b"\n")
            line = await reader.readline()
            writer.close()
        except OSError:
            line = b""
        if not line:
            self.process.wait()
            raise EngineDeadError
        text, reason, prompt_tokens, tokens, top = json.loads(line)
        logprobs = [
            {number: SimpleNamespace(decoded_token=word, logprob=nats) for number, (word, nats) in enumerate(position)}
            for position in top
        ]
        answer = SimpleNamespace(text=text, finish_reason=reason, token_ids=range(tokens), logprobs=logprobs)
        yield SimpleNamespace(
            finished=True, outputs=[answer], prompt_token_ids=range(prompt_tokens), num_cached_tokens=0
        )

    def shutdown(self) -> None:
        self.process.kill()
        self.process.communicate()


def light_vllm() -> dict[str, ModuleType]:
    """Return modules that stand in for vLLM's: its errors are its own, and nothing else of it is imported."""
    found = {}
    for name in LIGHT:
        found[name] = ModuleType(name)
        found[name].__path__ = [str(Path(site.getsitepackages()[0], *name.split(".")))]
    parameters = found["vllm.sampling_params"] = ModuleType("vllm.sampling_params")
    parameters.StructuredOutputsParams = SimpleNamespace  # type: ignore[attr-defined]
    found["vllm"].SamplingParams = SimpleNamespace  # type: ignore[attr-defined]
    return found


def stand_in_generator() -> VllmGenerator:
    """A VllmGenerator over a stand-in that has just been started; answers as FakeGenerator does. Needs light_vllm."""
    made = VllmGenerator.__new__(VllmGenerator)
    made.model_id, made._settings = FakeGenerator().model_id, VllmSettings(max_model_len=1 << 20)
    made._numbers, made._engine, made._tokenizer = itertools.count(), Engine(), Tokenizer()
    return made


class StandInActor(GeneratorActor):
    """A replica with such an engine."""

    @cached_property
    def _generator(self) -> Generator:
        sys.modules.update(light_vllm())
        return stand_in_generator()


def engine_of(actor: GeneratorActor) -> int:
    """Return the process id of a replica's engine."""
    return actor._generator._engine.process.pid  # type: ignore[attr-defined,no-any-return]


async def _serve() -> None:
    fake = FakeGenerator()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked, prefix, max_tokens, top, stop, choices = json.loads(await reader.readline())
        if "DEADLY" in asked:
            os._exit(9)
        request = GenerationRequest(
            messages=tuple(Message(**message) for message in json.loads(asked)), prefix=prefix, max_tokens=max_tokens,
            top_logprobs=top, stop=tuple(stop), choices=tuple(choices),
        )  # fmt: skip
        found = await fake.generate(request)
        logprobs = [[(item.text, item.logprob_nats) for item in position] for position in found.top]
        told = [found.text, found.finish_reason, found.usage.prompt_tokens, found.usage.completion_tokens, logprobs]
        writer.write(json.dumps(told).encode() + b"\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - for who started it
    await asyncio.to_thread(sys.stdin.read)  # until who started it is gone
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve())
