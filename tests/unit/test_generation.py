"""A request's digest names the replay: equal requests are one, and any difference makes two."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.generation import GenerationRequest, Message

MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant"]), content=st.text(max_size=8)),
    min_size=1,
    max_size=3,
).map(tuple)
REQUESTS = st.builds(
    GenerationRequest,
    messages=MESSAGES,
    max_tokens=st.integers(1, 9),
    temperature=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 3),
    prefix=st.text(max_size=3),
    choices=st.lists(st.text(max_size=2), max_size=2).map(tuple),
)
BASE = GenerationRequest(messages=(Message(role="user", content="q"),), max_tokens=5)
CHANGED = {
    "messages": (Message(role="assistant", content="q"),),
    "max_tokens": 6,
    "temperature": 0.5,
    "seed": 1,
    "stop": ("x",),
    "prefix": "y",
    "top_logprobs": 1,
    "choices": ("a",),
    "regex": "a",
    "json_schema": "{}",
}


@given(REQUESTS, REQUESTS)
def test_digests_are_equal_exactly_where_requests_are(a, b):
    assert (a.digest() == b.digest()) == (a == b)


def test_every_field_is_part_of_the_digest():
    assert set(CHANGED) == {field.name for field in fields(GenerationRequest)}
    digests = {replace(BASE, **{name: value}).digest() for name, value in CHANGED.items()}
    assert len(digests | {BASE.digest()}) == len(CHANGED) + 1


def test_text_cannot_move_between_messages():
    def request(*contents):  # noqa: ANN002
        return replace(BASE, messages=tuple(Message(role="user", content=content) for content in contents))

    assert request("ab", "c").digest() != request("a", "bc").digest()
    assert request('a","role":"user').digest() != request("a").digest()


@pytest.mark.parametrize("content", ["\ud800", "é", "e\u0301", "\x00"])
def test_any_text_of_a_request_can_be_named(content):
    request = replace(BASE, messages=(Message(role="user", content=content),))
    assert len(request.digest()) == 64


@pytest.mark.parametrize("tokens", [0, -1])
def test_an_answer_of_no_tokens_is_not_asked_for(tokens):
    with pytest.raises(UsageError, match=f"asks for an answer of {tokens} tokens, expected 1 or more"):
        GenerationRequest(messages=(), max_tokens=tokens)
