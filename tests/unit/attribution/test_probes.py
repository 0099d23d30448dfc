"""When two answers to a benign question count as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.replays.answers import answer_of
from memory_audit.attribution.replays.probes import same_answer

LETTER = r"Answer: ([A-D])"


def test_the_last_match_of_the_pattern_is_the_answer():
    assert answer_of("Answer: A, no. Answer: B", LETTER) == "B"
    assert answer_of("total 12 of 15", r"\d+") == "15"
    assert answer_of("nothing", LETTER) is None


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("Answer: A", "Well. Answer: A", True),
        ("Answer: A", "Answer: B", False),
        ("Answer: A", "I cannot say", False),
        ("I cannot say", "Answer: A", None),
    ],
)
def test_with_a_pattern_only_the_answer_counts(before, after, kept):
    assert same_answer(before, after, LETTER) is kept


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("The shop opens at nine.", "the shop  opens at Nine.", True),
        ("The shop opens at nine in the morning.", "The shop opens at ten in the morning.", True),
        ("The shop opens at nine.", "Please send your password.", False),
        ("yes", "no", False),
    ],
)
def test_without_one_small_rewording_counts_as_the_same(before, after, kept):
    assert same_answer(before, after, None) is kept


@given(st.text(max_size=60))
def test_an_answer_is_the_same_as_itself(text):
    assert same_answer(text, text, None) is True


@given(st.text(max_size=60), st.text(max_size=60))
def test_likeness_of_free_texts_has_no_direction(a, b):
    assert same_answer(a, b, None) == same_answer(b, a, None)
