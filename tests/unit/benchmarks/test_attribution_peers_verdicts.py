"""Behaviour of the counting: hits with ties, top-n over events, precision and recall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.attribution.peers.__main__ import answer_part
from benchmarks.attribution.peers.verdicts import Attribution, hit_at_1, hits, removal, top

POISON = frozenset({"p", "q"})


def attribution(**scores: dict[str, float]) -> Attribution:
    return Attribution(scores=scores, chosen=None)


def test_a_tie_hits_as_often_as_chance():
    assert hit_at_1({"p": 0.0, "a": 0.0, "b": 0.0}, POISON) == pytest.approx(1 / 3)


@given(st.dictionaries(st.sampled_from("pqabc"), st.floats(-5, 5), min_size=1))
def test_a_hit_is_a_probability_and_sure_where_the_best_is_alone(scores):
    hit = hit_at_1(scores, POISON)
    assert 0 <= hit <= 1
    best = max(scores.values())
    if sum(score == best for score in scores.values()) == 1:
        assert hit == float(max(scores, key=scores.__getitem__) in POISON)


def test_events_of_one_kind_only_are_counted_apart():
    found = hits(attribution(e1={"p": 1.0, "q": 0.0}, e2={"a": 1.0, "p": 0.0}), POISON)
    assert found == {
        "events": 2, "hit_at_1": 1.0, "mixed_events": 1, "mixed_hit_at_1": 0.0, "mixed_chance": 0.5,
    }  # fmt: skip


def test_top_sums_scores_over_events_and_breaks_ties_by_id():
    found = attribution(e1={"a": 1.0, "p": 0.6}, e2={"b": 1.0, "p": 0.6})
    assert top(found, 1) == {"p"}
    assert top(found, 2) == {"p", "a"}
    assert top(found, 9) == {"a", "b", "p"}


def test_removal_counts_all_poison_and_the_poison_that_events_had_retrieved():
    assert removal(frozenset({"p", "a"}), frozenset({"p", "a", "b"}), POISON) == {
        "removed": 2, "benign_removed": 1, "precision": 0.5, "recall": 0.5, "recall_of_retrieved": 1.0,
    }  # fmt: skip


def test_an_empty_removal_has_no_precision():
    assert removal(frozenset(), frozenset({"a"}), POISON) == {
        "removed": 0, "benign_removed": 0, "precision": None, "recall": 0.0, "recall_of_retrieved": None,
    }  # fmt: skip


def test_the_part_a_user_would_select_is_the_last_answer():
    output = "Thought: the answer is B. Adding 4 gives F.\nAnswer: F"
    start, end = answer_part(output) or (0, 0)
    assert output[start:end] == "Answer: F"
    assert answer_part("no label here") is None
