"""Driving episodes, and stepping into one at the turn that a driven one would have reached."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.replays.agents import FewShotAgent
from memory_audit.attribution.replays.replay import drive, replay, request_at, score_output
from memory_audit.errors import ModelError, UsageError
from memory_audit.generation import Completion, GenerationRequest, Message
from tests.unit.attribution.world import make_entry


def completion(text):
    return Completion(text=text, finish_reason="stop")


class Walker:
    """Takes as many turns as its answers say: each turn's prompt holds all answers so far."""

    name = "walker"

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def episode(self, query, memories, seed):
        said: list[str] = []
        for _ in range(self.turns):
            content = "|".join([query, *(entry.response for entry in memories), *said])
            answer = yield GenerationRequest(messages=(Message(role="user", content=content),), max_tokens=3, seed=seed)
            said.append(answer.text)
            if answer.text == "stop":
                break
        return " ".join(said)


def recorded(answers):
    """Complete requests from a list and keep them."""
    left, requests = list(answers), []

    async def complete(request):
        requests.append(request)
        return completion(left.pop(0))

    return complete, requests


ANSWERS = st.lists(st.sampled_from(["go", "look", "stop"]), min_size=5, max_size=5)


@given(ANSWERS, st.integers(1, 5), st.integers(0, 9))
def test_the_request_at_a_turn_is_the_one_that_a_driven_episode_makes_there(answers, turns, seed):
    agent, memories = Walker(turns), [make_entry(0, "memory")]
    complete, requests = recorded(answers)
    transcript = asyncio.run(replay(agent, "q", memories, seed, complete))
    for turn, request in enumerate(requests):
        assert request_at(agent, "q", memories, seed, transcript.answers[:turn]) == request
    assert request_at(agent, "q", memories, seed, transcript.answers) is None
    assert transcript.output == " ".join(transcript.answers)


def test_a_transcript_keeps_what_each_turn_said():
    complete, _ = recorded(["go", "look", "stop"])
    transcript = asyncio.run(replay(Walker(9), "q", [], 0, complete))
    assert transcript.answers == ("go", "look", "stop")


@given(ANSWERS, ANSWERS)
def test_prompt_hashes_are_equal_exactly_where_all_requests_are(first, second):
    runs = []
    for answers in (first, second):
        complete, requests = recorded(answers)
        runs.append((asyncio.run(replay(Walker(5), "q", [], 0, complete)).prompt_hash, requests))
    assert (runs[0][0] == runs[1][0]) == (runs[0][1] == runs[1][1])


def test_other_memories_or_seeds_are_other_prompts():
    def hash_of(memories, seed):
        complete, _ = recorded(["x"])
        return asyncio.run(replay(FewShotAgent(system="s"), "q", memories, seed, complete)).prompt_hash

    base = hash_of([make_entry(0)], 0)
    assert base == hash_of([make_entry(0)], 0)
    assert len({base, hash_of([make_entry(1)], 0), hash_of([make_entry(0)], 1), hash_of([], 0)}) == 4


def test_an_episode_that_asks_nothing_returns_at_once():
    def silent():
        yield from ()
        return 0.5

    complete, requests = recorded([])
    assert asyncio.run(score_output(silent(), complete)) == 0.5
    assert asyncio.run(drive(silent(), complete)) == (0.5, [])
    assert not requests


def scoring(value):
    yield from ()
    return value


@pytest.mark.parametrize("value", [math.nan, 1.5, -0.5, math.inf, "yes", [1.0]])
def test_a_score_of_a_scorer_of_the_users_own_is_refused_at_once_where_it_is_none(value):
    with pytest.raises(UsageError, match="expected 0 to 1 or None"):
        asyncio.run(score_output(scoring(value), fails))


@pytest.mark.parametrize(("value", "score"), [(None, None), (True, 1.0), (0, 0.0), (np.float32(0.5), 0.5)])
def test_a_score_may_be_any_kind_of_number(value, score):
    assert asyncio.run(score_output(scoring(value), fails)) == score


async def fails(_request):
    raise ModelError("not asked")


def test_a_failing_model_closes_the_episode():
    closed = []

    def steps():
        try:
            yield GenerationRequest(messages=(Message(role="user", content="q"),), max_tokens=1)
        finally:
            closed.append(True)

    async def dead(_request):
        raise ModelError("gone")

    with pytest.raises(ModelError, match="gone"):
        asyncio.run(drive(steps(), dead))
    assert closed == [True]
