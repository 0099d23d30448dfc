"""The conformal threshold: what it promises, and that it promises no more than its incidents can tell."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.calibration import Calibration, incidents_needed

NATS = st.integers(-3, 6).map(float)
"""Few values, so that ties are drawn often."""

LEVELS = st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.25, 0.5])
maxima = st.lists(NATS, max_size=60)


def calibration(values):
    return Calibration(largest_nats=tuple(values))


@given(st.lists(NATS, min_size=1, max_size=12), LEVELS)
def test_one_of_exchangeable_incidents_is_convicted_in_no_more_than_its_share(values, level):
    """Each incident is in turn the one in question: over all permutations each is so equally often."""
    convicted = sum(
        value > calibration(values[:number] + values[number + 1 :]).threshold_nats(level)
        for number, value in enumerate(values)
    )
    assert Fraction(convicted, len(values)) <= Fraction(str(level))


@given(maxima, NATS, LEVELS)
def test_evidence_exceeds_the_threshold_just_where_its_p_is_at_most_the_level(values, nats, level):
    known = calibration(values)
    assert (nats > known.threshold_nats(level)) == (round(known.p_value(nats), 9) <= level)


@given(maxima, LEVELS)
def test_the_threshold_is_the_rank_that_the_recipe_names(values, level):
    ranks = len(values) + 1
    rank = math.ceil((1 - Fraction(str(level))) * ranks)
    expected = sorted(values)[rank - 1] if rank <= len(values) else math.inf
    assert calibration(values).threshold_nats(level) == expected


@given(maxima, NATS, NATS, LEVELS)
def test_more_evidence_has_no_larger_p_and_a_smaller_level_no_lower_threshold(values, one, other, level):
    known = calibration(values)
    low, high = sorted((one, other))
    assert known.p_value(high) <= known.p_value(low)
    assert known.threshold_nats(level / 2) >= known.threshold_nats(level)


@given(maxima, LEVELS, st.integers(1, 9))
def test_more_queries_ask_for_no_less_and_never_for_more_than_incidents_can_tell(values, level, queries):
    known = calibration(values)
    one, many = known.threshold_nats(level), known.threshold_nats(level, queries)
    assert many >= one
    assert math.isinf(many) == math.isinf(one)
    if known.p_value(max(values, default=0.0) + 1, queries) <= level:  # C can tell α/J
        assert many == known.threshold_nats(level / queries)


@pytest.mark.parametrize(("level", "needed"), [(0.05, 19), (0.02, 49), (0.01, 99), (0.03, 33), (1.0, 0)])
def test_so_many_incidents_are_needed(level, needed):
    assert incidents_needed(level) == needed
    assert not math.isinf(calibration(range(needed)).threshold_nats(level)) or needed == 0
    assert needed == 0 or math.isinf(calibration(range(needed - 1)).threshold_nats(level))


def test_no_p_is_zero_and_j_queries_multiply_it():
    known = calibration(map(float, range(99)))
    assert known.p_value(1e9) == 0.01
    assert known.p_value(1e9, 3) == pytest.approx(0.03)
    assert known.p_value(-1.0) == known.p_value(-1.0, 5) == 1.0
    assert known.p_value(98.0) == 0.02  # a tie counts against the memory


def test_the_order_of_incidents_says_nothing():
    for order in itertools.permutations([1.0, 3.0, 2.0]):
        assert calibration(order) == calibration([1.0, 2.0, 3.0])
