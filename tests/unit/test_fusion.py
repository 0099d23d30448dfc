"""The algebra of the fused score, and the prefix search against brute force."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.fusion import PrefixSearch, choose_budget, fuse, normalise

finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e6, 1e6).map(lambda value: round(value, 6))
scores = st.lists(st.tuples(st.none() | moderate, st.none() | st.floats(0, 50)), min_size=1, max_size=30)


def ids(n):
    return [f"m-{i:03}" for i in range(n)]


@settings(deadline=None)
@given(st.lists(st.none() | finite, max_size=40))
def test_normalised_values_lie_in_0_to_1_and_reach_both_ends_unless_constant(values):
    scaled = normalise(values)
    assert all(0 <= value <= 1 for value in scaled)
    known = [value or 0.0 for value in values]
    if known and max(known) > min(known):
        assert min(scaled) == 0
        assert max(scaled) == 1
    else:
        assert scaled == [0.0] * len(values)


@settings(deadline=None)
@given(st.lists(moderate, min_size=2, max_size=30), st.integers(-20, 20))
def test_normalisation_ignores_the_scale(values, power):
    assert normalise([math.ldexp(value, power) for value in values]) == pytest.approx(normalise(values))


@settings(deadline=None)
@given(st.lists(finite, min_size=2, max_size=30))
def test_normalisation_keeps_the_order(values):
    scaled = normalise(values)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert all(scaled[a] <= scaled[b] for a, b in itertools.pairwise(order))


def test_constant_and_empty_inputs_are_no_evidence():
    assert normalise([]) == []
    assert normalise([0.7, 0.7, 0.7]) == [0.0, 0.0, 0.0]
    assert normalise([None, None]) == [0.0, 0.0]
    assert fuse([], [], []) == ()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(value):
    with pytest.raises(UsageError, match=r"score 1 is .* finite number"):
        normalise([1.0, value])
    with pytest.raises(UsageError):
        fuse(["a", "b"], [0.0, math.nan], [0.0, 0.0])


@settings(deadline=None)
@given(scores, st.floats(0, 1))
def test_ds_is_bounded_and_follows_eq_10(rows, alpha):
    for score in fuse(ids(len(rows)), [c for c, _ in rows], [a for _, a in rows], alpha=alpha):
        assert 0 <= score.ds <= 1 + 1e-12
        assert score.ds == pytest.approx(alpha * score.cmis_normalised + (1 - alpha) * score.cas_normalised)


@settings(deadline=None)
@given(scores, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(rows, random):
    named = [(name, *row) for name, row in zip(ids(len(rows)), rows, strict=True)]
    shuffled = list(named)
    random.shuffle(shuffled)
    assert fuse(*zip(*named, strict=True)) == fuse(*zip(*shuffled, strict=True))


@settings(deadline=None)
@given(scores)
def test_ranks_count_from_one_by_falling_ds(rows):
    ranking = fuse(ids(len(rows)), [c for c, _ in rows], [a for _, a in rows])
    assert [score.rank for score in ranking] == list(range(1, len(rows) + 1))
    assert [score.ds for score in ranking] == sorted((score.ds for score in ranking), reverse=True)


def test_alpha_one_is_influence_only_and_alpha_zero_inconsistency_only():
    args = (["a", "b", "c"], [0.0, 2.0, 1.0], [3.0, 0.0, 1.0])
    assert [score.entry_id for score in fuse(*args, alpha=1)] == ["b", "c", "a"]
    assert [score.entry_id for score in fuse(*args, alpha=0)] == ["a", "c", "b"]


def test_ties_fall_to_cmis_then_to_the_entry_id():
    ranking = fuse(["d", "c", "b", "a"], [-1.0, None, 0.0, -2.0], [0.0, 0.0, 0.0, 0.0])
    assert [score.entry_id for score in ranking] == ["b", "c", "d", "a"]
    assert {score.ds for score in ranking} == {0.0}


def test_unknown_influence_counts_as_none_but_is_reported_unknown():
    ranking = fuse(["a", "b", "c"], [0.2, None, 1.0], [0.0, 0.0, 0.0])
    assert [(score.entry_id, score.cmis, score.cmis_normalised) for score in ranking] == [
        ("c", 1.0, 1.0), ("a", 0.2, 0.2), ("b", None, 0.0),
    ]  # fmt: skip


def test_one_very_negative_influence_does_not_flatten_the_others():
    ranking = fuse(["a", "b", "c"], [1.0, None, -100.0], [0.0, 0.0, 0.0])
    assert [score.cmis_normalised for score in ranking] == [1.0, 0.0, 0.0]
    assert ranking[-1].cmis == -100.0


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan])
def test_alpha_outside_0_to_1_is_refused(alpha):
    with pytest.raises(UsageError, match="alpha is"):
        fuse(["a"], [0.0], [0.0], alpha=alpha)


def test_columns_of_different_length_and_repeated_ids_are_refused():
    with pytest.raises(UsageError, match="lengths differ"):
        fuse(["a", "b"], [0.0], [0.0, 1.0])
    with pytest.raises(UsageError, match="comes twice"):
        fuse(["a", "a"], [0.0, 1.0], [0.0, 1.0])


def test_a_budget_never_takes_entries_without_evidence():
    ranking = fuse(["a", "b", "c", "d"], [1.0, 0.5, 0.0, None], [0.0] * 4)
    assert choose_budget(ranking, 1) == ("a",)
    assert choose_budget(ranking, 4) == ("a", "b")
    assert choose_budget(ranking, 0) == ()
    with pytest.raises(UsageError, match="budget is -1"):
        choose_budget(ranking, -1)


def test_a_budget_takes_entries_with_equal_evidence():
    assert choose_budget(fuse(["a", "b"], [5.0, 5.0], [0.0, 0.0]), 2) == ("a", "b")
    assert choose_budget(fuse(["a"], [None], [0.3]), 1) == ("a",)
    assert choose_budget(fuse(["a", "b"], [0.0, -1.0], [None, 0.0]), 2) == ()


def test_a_score_that_does_not_count_is_no_evidence():
    assert choose_budget(fuse(["a", "b"], [0.0, 1.0], [0.3, 0.0], alpha=1), 2) == ("b",)
    assert choose_budget(fuse(["a", "b"], [0.0, 1.0], [0.3, 0.0], alpha=0), 2) == ("a",)


def run(search, harm_left):
    """Search to the end; return the answer, and the harm left by each size that was replayed."""
    tested = {}
    while (size := search.proposal()) is not None:
        tested[size] = harm_left(size)
        search.record(size, harm=tested[size])
        assert len(tested) < 100
    return search.smallest, tested


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(1, 400))
def test_a_monotone_harm_is_ended_by_the_true_smallest_prefix_in_logarithmic_replays(limit, needed):
    found, tested = run(PrefixSearch(limit), lambda size: size < needed)
    assert found == (needed if needed <= limit else None)
    assert len(tested) <= 2 * math.log2(max(limit, 1) + 1) + 2


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=40))
def test_whatever_the_harm_does_the_answer_was_replayed_and_one_less_leaves_harm(harms):
    found, tested = run(PrefixSearch(len(harms)), lambda size: harms[size - 1])
    if found is None:
        assert all(tested.values())
        assert not harms or len(harms) in tested
    else:
        assert not tested[found]
        assert found == 1 or tested[found - 1]


def test_a_replay_that_was_not_proposed_is_refused():
    search = PrefixSearch(4)
    with pytest.raises(UsageError, match="prefix 3 was replayed, but 1 was proposed"):
        search.record(3, harm=False)
    with pytest.raises(UsageError, match="prefix limit is -1"):
        PrefixSearch(-1)
