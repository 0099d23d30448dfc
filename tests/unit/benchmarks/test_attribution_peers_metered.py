"""Behaviour of the metered backbone: what counts, what is computed, what comes from disk."""

from __future__ import annotations

import asyncio
import time

import pytest

from benchmarks.attribution.peers.metered import MeteredBackbone
from memory_audit.generation import GenerationRequest, Message, TokenUsage
from memory_audit.models.fakes import FakeGenerator


def request(text: str) -> GenerationRequest:
    return GenerationRequest(messages=(Message(role="user", content=text),), max_tokens=4)


class Resettable(FakeGenerator):
    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    async def generate(self, request):
        self.log.append("answer")
        return await super().generate(request)

    async def reset_prefix_cache(self) -> None:
        await asyncio.sleep(0)
        self.log.append("reset")


@pytest.fixture
def fake():
    return Resettable()


@pytest.fixture
async def backbone(tmp_path, fake):
    metered = MeteredBackbone(tmp_path / "answers.sqlite", lambda: fake, fake.model_id)
    yield metered
    await metered.close()


async def test_answers_between_methods_come_from_disk_and_cost_nobody(backbone, fake):
    await backbone.generate(request("a"))
    await backbone.generate(request("a"))
    assert fake.requests == 1
    backbone.begin(fresh=False)
    assert backbone.end().calls == 0


async def test_a_cached_method_counts_as_if_computed_and_states_no_seconds(backbone, fake):
    await backbone.generate(request("one two three"))
    backbone.begin(fresh=False)
    await backbone.generate(request("one two three"))
    cost = backbone.end()
    assert fake.requests == 1
    assert (cost.calls, cost.usage, cost.seconds) == (1, TokenUsage(prompt_tokens=3, completion_tokens=1), None)
    assert cost.computed_tokens == 4


async def test_a_fresh_method_computes_what_lies_on_disk_and_takes_the_time(backbone, fake):
    await backbone.generate(request("a"))
    backbone.begin(fresh=True)
    await backbone.generate(request("a"))
    cost = backbone.end()
    assert fake.requests == 2
    assert cost.seconds is not None
    assert cost.seconds > 0


async def test_equal_requests_of_one_method_are_asked_once_and_of_two_methods_twice(backbone, fake):
    for _ in range(2):
        backbone.begin(fresh=True)
        await asyncio.gather(*(backbone.generate(request("a")) for _ in range(3)))
        assert backbone.end().calls == 1
    assert fake.requests == 2


@pytest.mark.parametrize("fresh", [False, True])
async def test_the_prefix_cache_is_emptied_once_before_the_first_answer_of_a_method(backbone, fake, fresh):
    await backbone.generate(request("before"))
    backbone.begin(fresh=fresh)
    await asyncio.gather(*(backbone.generate(request(text)) for text in "abc"))
    backbone.end()
    assert fake.log == ["answer", "reset", "answer", "answer", "answer"]


async def test_a_method_that_had_to_compute_everything_states_its_seconds(backbone):
    backbone.begin(fresh=False)
    await backbone.generate(request("a"))
    assert backbone.end().seconds is not None


async def test_a_method_that_found_a_part_on_disk_states_none(backbone):
    await backbone.generate(request("a"))
    backbone.begin(fresh=False)
    await asyncio.gather(*(backbone.generate(request(text)) for text in "ab"))
    cost = backbone.end()
    assert (cost.calls, cost.seconds) == (2, None)


async def test_the_start_of_the_backbone_is_nobodys_cost(tmp_path, fake):
    def start():
        time.sleep(0.3)
        return fake

    metered = MeteredBackbone(tmp_path / "answers.sqlite", start, fake.model_id)
    metered.begin(fresh=True)
    await metered.generate(request("a"))
    seconds = metered.end().seconds
    await metered.close()
    assert seconds is not None
    assert seconds < 0.3


async def test_closing_closes_a_backbone_that_was_started(backbone, fake):
    closed = []

    async def close():
        closed.append(True)

    fake.close = close
    await backbone.generate(request("a"))
    await backbone.close()
    assert closed
