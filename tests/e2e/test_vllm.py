"""One real small model in vLLM: inside a Ray actor, and behind vLLM's own OpenAI-compatible server.

The actor is started once for this file; the last of its tests kills its engine.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest
import ray

from memory_audit.errors import AnswerError, PromptTooLongError
from memory_audit.generation import Completion, GenerationRequest, Message
from memory_audit.models.backbone.generator_http import HttpGenerator, HttpSettings
from memory_audit.models.backbone.generator_vllm import VllmSettings
from memory_audit.models.loading import ModelSpecs
from memory_audit.models.services.actors import GeneratorActor
from memory_audit.models.services.remote import RemoteGenerator
from memory_audit.models.weights.packaged import ensure
from tests.unit.models.kept_here import Here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.models.protocols import Generator

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.weights,
    pytest.mark.timeout(900),  # the first use on a machine assembles the weights
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # ray leaves its log sockets to the collector
]

CAPITAL = "What is the capital of France?"
FORCED = "The capital of France is"
SYSTEM = "You are the help desk of a shop. Answer in one short sentence. " * 20
SMALL = VllmSettings(max_model_len=2_048, kv_cache_gib=1)
START_S = 600


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    specs = ModelSpecs(backbone="packaged:0.5b", vllm=SMALL)
    ensure("0.5b")
    started = not ray.is_initialized()
    if started:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    kept = Here(GeneratorActor, specs, replicas=2)
    yield kept
    kept.close()
    if started:
        ray.shutdown()


def ask(question: str, **options: object) -> GenerationRequest:
    messages = (Message(role="system", content=SYSTEM), Message(role="user", content=question))
    return GenerationRequest(messages=messages, **({"max_tokens": 12} | options))  # type: ignore[arg-type]


def answers(generator: Generator, *requests: GenerationRequest) -> list[Completion]:
    async def gather() -> list[Completion]:
        return await asyncio.gather(*(generator.generate(request) for request in requests))

    return asyncio.run(gather())


def test_greedy_answers_repeat_and_say_something(here: Here):
    request = ask(CAPITAL)
    first, second = (answers(RemoteGenerator(here.replicas, "event"), request)[0] for _ in range(2))
    assert first.text == second.text
    assert "Paris" in first.text
    assert first.finish_reason == "stop"
    assert here.pool.model_id.startswith("qwen2.5-coder-0.5b-instruct@")


def test_a_second_prompt_with_the_same_start_finds_it_in_the_prefix_cache(here: Here):
    generator = RemoteGenerator(here.replicas, "event")
    answers(generator, ask("Where is my order?", max_tokens=1))
    (second,) = answers(generator, ask("How do I return a shoe?", max_tokens=1))
    assert second.usage.cached_tokens > second.usage.prompt_tokens / 2


def test_a_forced_prefix_is_continued_and_keeps_the_cache(here: Here):
    generator = RemoteGenerator(here.replicas, "event")
    (free,) = answers(generator, ask(CAPITAL, max_tokens=1))
    (forced,) = answers(
        generator,
        ask(CAPITAL, prefix=FORCED, max_tokens=1, top_logprobs=5),
    )
    assert forced.text == " Paris"
    assert forced.usage.prompt_tokens == free.usage.prompt_tokens + 5
    assert forced.usage.cached_tokens > 0
    (alternatives,) = forced.top
    assert alternatives[0].text == " Paris"
    assert len(alternatives) == 5
    values = [item.logprob_nats for item in alternatives]
    assert values == sorted(values, reverse=True)
    assert values[0] < 0


def test_guides_hold(here: Here):
    generator = RemoteGenerator(here.replicas, "event")
    schema = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'
    chosen, number, record = answers(
        generator,
        ask("Is Paris in France?", choices=("yes", "no"), top_logprobs=2),
        ask("Tell me a number", regex="[0-9]{3}"),
        ask("Ann is 31 years old. As JSON?", json_schema=schema, max_tokens=40),
    )
    assert chosen.text == "yes"
    assert {item.text for item in chosen.top[0]} == {"yes", "no"}
    assert len(number.text) == 3
    assert number.text.isdigit()
    assert "age" in record.text


def test_a_seed_repeats_a_sample(here: Here):
    generator = RemoteGenerator(here.replicas, "event")
    same, again, other = (
        answers(generator, ask("Invent a cat name.", temperature=1.5, seed=seed, max_tokens=24))[0].text
        for seed in (1, 1, 2)
    )
    assert same == again != other


def test_seeded_prompts_are_answered_where_they_do_not_fit_into_one_step_together(here: Here):
    prompts = [" ".join(f"{number} bottles of {word}" for number in range(70)) for word in "abcdefghijkl"]
    asked = [ask(prompt, max_tokens=2, temperature=0.8, seed=7) for prompt in prompts]
    found = answers(RemoteGenerator(here.replicas, "event"), *asked)
    assert (
        sum(answer.usage.prompt_tokens - answer.usage.cached_tokens for answer in found) > SMALL.max_num_batched_tokens
    )
    assert all(answer.usage.completion_tokens for answer in found)


def test_a_prompt_too_long_is_refused_and_the_engine_lives_on(here: Here):
    generator = RemoteGenerator(here.replicas, "event")
    with pytest.raises(PromptTooLongError, match=r"^a prompt of 3\d{3} tokens and an answer of \d+ do not fit .* 2048"):
        answers(generator, ask("word " * 3_000))
    assert answers(generator, ask("Hello", max_tokens=1))[0].usage.completion_tokens == 1


def test_what_vllm_refuses_costs_that_question_and_not_its_batch(here: Here):
    async def gather() -> list[Completion | BaseException]:
        generator = RemoteGenerator(here.replicas, "event")
        requests = (ask(CAPITAL, top_logprobs=21), ask(CAPITAL, regex="("), ask(CAPITAL))
        return await asyncio.gather(*map(generator.generate, requests), return_exceptions=True)

    *refused, answer = asyncio.run(gather())
    for found, reason in zip(refused, ("greater than max allowed: 20", "regex"), strict=True):
        assert type(found) is AnswerError
        assert str(found).startswith(f"vLLM refused a request to {here.pool.model_id}: ")
        assert reason in str(found)
    assert isinstance(answer, Completion)


def test_a_run_goes_on_with_the_other_replica_where_the_engine_of_one_is_killed(here: Here):
    generator = RemoteGenerator(here.replicas, "event")
    # Left to itself the model may end before the kill, on a fast machine within the second.
    long = ask("Count to a thousand.", max_tokens=400, regex=r"[0-9]( [0-9]){60}")
    there = here.all_there()
    actor = psutil.Process(there[generator.number(long) % len(there)].process_id())
    engines = [process for process in actor.children(recursive=True) if process.name().startswith("VLLM::EngineCor")]
    assert len(engines) == 1

    async def kill_while_answering() -> list[Completion]:
        running = asyncio.gather(*(generator.generate(request) for request in (long, ask(CAPITAL))))
        await asyncio.sleep(1)
        for process in engines:
            process.kill()
        return await running

    counted, told = asyncio.run(kill_while_answering())
    assert counted.text.startswith(tuple("0123456789"))
    assert "Paris" in told.text
    assert "Paris" in answers(RemoteGenerator(here.replicas, "event"), ask(CAPITAL))[0].text
    assert not actor.is_running()


@pytest.fixture
def server_url(here: Here) -> Iterator[str]:
    """Serve the same weights over HTTP; the actors are stopped first, for their memory."""
    here.close()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
    process = subprocess.Popen(
        [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(ensure("0.5b")),
            "--served-model-name", "small", "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048",
            "--enforce-eager", "--dtype", "bfloat16", "--enable-prompt-tokens-details",
        ],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + START_S
    try:
        while True:
            assert process.poll() is None, "the server ended before it was ready"
            assert time.monotonic() < deadline, "the server was not ready in time"
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == httpx.codes.OK:
                    break
            except httpx.TransportError:
                time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(60)


def test_the_http_client_gets_the_same_from_a_vllm_server(server_url: str):
    async def talk() -> tuple[bool, Completion, Completion]:
        generator = HttpGenerator(server_url, "small", HttpSettings())
        try:
            return (
                await generator.supports_prefix_logprobs(),
                await generator.generate(
                    ask(
                        "What is the capital of France?",
                        prefix="The capital of France is",
                        max_tokens=1,
                        top_logprobs=5,
                    )
                ),
                await generator.generate(ask("Is Paris in France?", choices=("yes", "no"))),
            )
        finally:
            await generator.close()

    supported, forced, chosen = asyncio.run(talk())
    assert supported
    assert forced.text == forced.top[0][0].text == " Paris"
    assert chosen.text == "yes"
    assert chosen.usage.cached_tokens > 0
