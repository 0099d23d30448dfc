"""Error bars cover what they should and never leave the range of a rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.intervals import bootstrap, wilson


def test_wilson_of_nothing_says_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


def test_wilson_of_zero_in_ten_reaches_to_the_known_bound():
    low, high = wilson(0, 10)
    assert low == 0.0
    assert high == pytest.approx(0.2775, abs=1e-3)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_stays_within_zero_and_one(drawn):
    successes, trials = drawn
    low, high = wilson(successes, trials)
    assert 0.0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1.0


@given(st.integers(1, 200))
def test_more_trials_make_wilson_narrower(trials):
    narrow, wide = wilson(4 * trials, 8 * trials), wilson(trials, 2 * trials)
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


def test_bootstrap_of_one_value_is_that_value():
    assert bootstrap([0.7]) == (0.7, 0.7)


def test_bootstrap_is_the_same_with_the_same_seed_and_holds_the_mean():
    values = [0.0, 0.2, 0.4, 1.0]
    low, high = bootstrap(values)
    assert (low, high) == bootstrap(values)
    assert low < 0.4 < high


def test_bootstrap_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values to bootstrap"):
        bootstrap([])
