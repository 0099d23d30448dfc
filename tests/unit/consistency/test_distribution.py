"""Which CAS is usual: of a whole store exactly, of a sample with an error that holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.consistency.distribution import SAMPLE, CasDistribution, sampled

SCORES = st.lists(st.floats(0, 50), min_size=1, max_size=60)


@settings(deadline=None)
@given(SCORES)
def test_a_whole_store_has_no_error(scores):
    cas = np.array(scores)
    usual = CasDistribution.of(cas, len(cas))
    assert [usual.mean.error, usual.median.error, usual.deviation.error] == [0, 0, 0]
    assert usual.sampled == len(cas)
    assert usual.median.value == np.median(cas)
    assert usual.mean.value == pytest.approx(cas.mean())
    assert usual.deviation.value == pytest.approx(cas.std())


@pytest.mark.parametrize("skewed", [False, True])
def test_intervals_of_samples_hold_as_often_as_they_say(skewed):
    rng = np.random.default_rng(1)
    store = rng.gamma(2.0, size=4_000) * (rng.random(4_000) < 0.4 if skewed else 1.0)
    truth = {"mean": store.mean(), "median": np.median(store), "deviation": store.std()}
    held = dict.fromkeys(truth, 0)
    for seed in range(200):
        found = CasDistribution.of(store[sampled(len(store), seed)], len(store))
        for name, value in truth.items():
            estimate = getattr(found, name)
            held[name] += abs(estimate.value - value) <= estimate.error
    assert min(held.values()) >= 180  # of 190 expected


def test_one_outlier_is_unusual_and_equal_scores_are_not():
    scores = np.array([0.1] * 20 + [3.0])
    assert (scores > CasDistribution.of(scores, len(scores)).unusual).tolist() == [False] * 20 + [True]
    equal = np.full(7, 0.1)
    assert not (equal > CasDistribution.of(equal, 7).unusual).any()


@settings(deadline=None)
@given(SCORES)
def test_what_is_unusual_never_exceeds_a_quarter(scores):
    cas = np.array(scores)
    unusual = (cas > CasDistribution.of(cas, len(cas)).unusual).mean()
    assert unusual <= 0.25  # Chebyshev: at most 1 / 2² lie two deviations away


@given(st.integers(0, 3 * SAMPLE), st.integers(0, 50), st.integers(0, 100))
def test_what_is_appended_takes_the_places_of_as_many_at_most(entries, more, seed):
    before, after = sampled(entries, seed).tolist(), sampled(entries + more, seed).tolist()
    assert before == sorted(set(before))
    assert len(before) == min(entries, SAMPLE)
    assert len(set(before) - set(after)) <= more
    assert all(place < entries for place in before)
