"""The fakes react to what they are given, and always in the same way."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.generation import Completion, GenerationRequest, Message
from memory_audit.models.fakes import FakeEmbedder, FakeEntailment, FakeGenerator


def ask(generator: FakeGenerator, poisoned: int, benign: int, **options: object) -> Completion:
    turns = ["POISON: do harm"] * poisoned + ["be kind"] * benign
    messages = tuple(
        message
        for turn in turns
        for message in (Message(role="user", content="how?"), Message(role="assistant", content=turn))
    )
    request = GenerationRequest(
        messages=(*messages, Message(role="user", content="and now?")),
        **({"max_tokens": 20} | options),  # type: ignore[arg-type]
    )
    return asyncio.run(generator.generate(request))


def log_odds(completion: Completion) -> float:
    values = {item.text: item.logprob_nats for item in completion.top[0]}
    return values["HARM"] - values["fine"]


def test_answer_turns_harmful_at_the_threshold():
    generator = FakeGenerator(threshold=2)
    assert [ask(generator, poisoned, 3).text for poisoned in range(4)] == ["fine", "fine", "HARM", "HARM"]
    assert generator.requests == 4


@given(benign=st.integers(1, 5), threshold=st.integers(1, 4))
def test_each_poisoned_turn_raises_the_log_odds_of_harm(benign: int, threshold: int):
    generator = FakeGenerator(threshold=threshold)
    odds = [log_odds(ask(generator, poisoned, benign, top_logprobs=2)) for poisoned in range(6)]
    assert odds == sorted(odds)
    assert len(set(odds)) == len(odds)
    assert all((value > 0) == (poisoned >= threshold) for poisoned, value in enumerate(odds))


def test_alternatives_are_probabilities_and_the_first_is_what_is_said():
    completion = ask(FakeGenerator(), 1, 1, top_logprobs=2)
    assert completion.top[0][0].text == completion.text == "HARM"
    assert sum(np.exp(item.logprob_nats) for item in completion.top[0]) == pytest.approx(1)


def test_a_memory_slot_without_turns_counts_lines():
    request = GenerationRequest(messages=(Message(role="user", content="a\nPOISON b\nc"),), max_tokens=5)
    assert asyncio.run(FakeGenerator().generate(request)).text == "HARM"


def test_length_stop_prefix_and_choices_are_kept():
    generator = FakeGenerator(poisoned="do the harm now")
    assert ask(generator, 1, 0, max_tokens=2).text == "do the"
    assert ask(generator, 1, 0, max_tokens=2).finish_reason == "length"
    assert ask(generator, 1, 0, stop=(" harm",)).text == "do the"
    assert ask(generator, 1, 0, prefix="do the").text == " harm now"
    assert ask(generator, 1, 0, choices=("yes", "no")).text == "yes"
    assert ask(generator, 0, 1, choices=("yes", "no")).text == "no"


def test_entailment_sees_negation_numbers_and_agreement():
    rows = FakeEntailment().probabilities(
        [
            ("refunds are allowed", "refunds are not allowed"),
            ("the limit is 30 days", "the limit is 90 days"),
            ("refunds are allowed", "refunds are allowed"),
            ("refunds are allowed", "penguins swim"),
        ]
    )
    assert rows.argmax(axis=1).tolist() == [0, 0, 2, 1]
    assert rows.sum(axis=1) == pytest.approx(np.ones(4))
    assert FakeEntailment().probabilities([]).shape == (0, 3)


def test_embedder_puts_shared_words_near_and_unit_length():
    vectors = FakeEmbedder().embed(["reset my password", "password reset please", "weather in Oslo", ""])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(4))
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_another_process_embeds_to_the_same_bytes():
    code = (
        "from memory_audit.models.fakes import FakeEmbedder\n"
        "print(FakeEmbedder().embed(['reset my password']).tobytes().hex())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other == FakeEmbedder().embed(["reset my password"]).tobytes().hex()
