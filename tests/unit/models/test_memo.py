"""One answer for equal requests, and nobody's cancellation is anybody else's."""

from __future__ import annotations

import asyncio

import pytest

from memory_audit.errors import ModelError
from memory_audit.generation import Completion, GenerationRequest, Message, TokenUsage
from memory_audit.models.backbone.memo import MemoGenerator

REQUEST = GenerationRequest(messages=(Message(role="user", content="hi"),), max_tokens=1)


class Slow:
    """Answers when it is told to, and counts what was asked and what was given up."""

    model_id = "slow"

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.asked = self.ended = 0
        self.fails = False

    async def generate(self, _request):
        self.asked += 1
        try:
            await self.told.wait()
        except asyncio.CancelledError:
            self.ended += 1
            raise
        if self.fails:
            raise ModelError("dead")
        return Completion(text="yes", finish_reason="stop", usage=TokenUsage(prompt_tokens=3))


async def two_callers(slow):
    memo = MemoGenerator(slow)
    tasks = [asyncio.create_task(memo.generate(REQUEST)) for _ in range(2)]
    await asyncio.sleep(0.01)
    return memo, tasks


@pytest.mark.parametrize("hasty", [0, 1])
def test_who_is_cancelled_leaves_the_answer_to_the_others(hasty):
    async def call():
        slow = Slow()
        memo, tasks = await two_callers(slow)
        tasks[hasty].cancel()
        await asyncio.sleep(0.01)
        later = asyncio.create_task(memo.generate(REQUEST))
        await asyncio.sleep(0.01)
        slow.told.set()
        answers = [(await task).text for task in (tasks[1 - hasty], later)]
        return answers, slow.asked, (await memo.generate(REQUEST)).usage.prompt_tokens

    assert asyncio.run(call()) == (["yes", "yes"], 1, 0)


def test_what_nobody_waits_for_any_more_is_ended_and_asked_anew():
    async def call():
        slow = Slow()
        memo, tasks = await two_callers(slow)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
        again = asyncio.create_task(memo.generate(REQUEST))
        await asyncio.sleep(0.01)
        slow.told.set()
        return (await again).text, slow.asked, slow.ended

    assert asyncio.run(call()) == ("yes", 2, 1)


def test_a_failure_reaches_all_who_wait_and_is_not_remembered():
    async def call():
        slow = Slow()
        slow.fails = True
        memo, tasks = await two_callers(slow)
        slow.told.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        slow.fails = False
        return [type(item) for item in found], (await memo.generate(REQUEST)).text, slow.asked

    assert asyncio.run(call()) == ([ModelError, ModelError], "yes", 2)
