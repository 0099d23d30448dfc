"""The networks of the reader of behaviours: what attention over passages does, and what must not matter."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.models.activations import behaviour_networks as act_networks
from memory_audit.models.activations.behaviour_networks import HarmNetworks
from tests.unit.models.behaviour_weights import comparing_networks, harm_networks

SEEDS = st.integers(0, 1_000)


@given(SEEDS, st.integers(1, 9), st.integers(1, 5))
def test_neither_the_order_of_passages_matters_nor_how_often_they_are_said(seed, passages, times):
    random = np.random.default_rng(seed)
    means, harm, comparing = random.normal(size=(passages, 6)), harm_networks(random), comparing_networks(random)
    behaviours = random.normal(size=(3, 4)).astype(np.float32)
    told, odds = harm.log_odds(means), comparing.log_odds(comparing.seen(means), behaviours)
    for others in (random.permutation(means), np.tile(means, (times, 1))):
        assert harm.log_odds(others) == pytest.approx(told, abs=1e-3)
        assert comparing.log_odds(comparing.seen(others), behaviours) == pytest.approx(odds, abs=1e-3)


def test_one_passage_is_its_values_and_attention_finds_one_among_many():
    one = np.array([[1.0, 0, 0, 0, 0, 0]], np.float32)
    unit = np.eye(6, dtype=np.float32)[None, :1]
    heads = HarmNetworks(
        units=unit, units_bias=np.zeros((1, 1), np.float32), queries=np.full((1, 1, 1), 50, np.float32),
        values=np.full((1, 1, 1), 3, np.float32), bias=np.array([-1.0], np.float32),
    )  # fmt: skip
    assert heads.log_odds(one) == pytest.approx(2.0)
    assert heads.log_odds(np.concatenate([np.zeros((30, 6), np.float32), one])) == pytest.approx(2.0, abs=1e-3)
    assert heads.log_odds(np.zeros((3, 6), np.float32)) == pytest.approx(-1.0)


@given(SEEDS, st.integers(1, 7), st.integers(1, 5))
def test_acts_are_compared_each_by_itself_however_many_at_once(seed, passages, count):
    random = np.random.default_rng(seed)
    networks = comparing_networks(random)
    seen = networks.seen(random.normal(size=(passages, 6)).astype(np.float32))
    behaviours = random.normal(size=(count, 4)).astype(np.float32)
    alone = [float(networks.log_odds(seen, behaviour[None])[0]) for behaviour in behaviours]
    assert networks.log_odds(seen, behaviours) == pytest.approx(np.array(alone), abs=1e-4)
    with patch.object(act_networks, "_AT_ONCE", 2):
        assert networks.log_odds(seen, behaviours) == pytest.approx(np.array(alone), abs=1e-4)
    assert networks.log_odds(seen, behaviours[:0]).shape == (0,)


@given(SEEDS, st.integers(1, 4))
def test_comparing_is_what_its_docstring_says(seed, passages):
    """One network, written out passage by passage."""
    random = np.random.default_rng(seed)
    networks, states = comparing_networks(random), random.normal(size=(passages, 6))
    behaviour = random.normal(size=4)
    behaviour /= np.linalg.norm(behaviour)
    told = []
    for n in range(2):
        sought, said = [], []
        for state in states:
            active = np.maximum(networks.units[n] @ state + networks.units_bias[n], 0)
            vector = networks.matched[n] @ state + networks.matched_bias[n]
            key, vector = 2 * behaviour, 2 * vector / np.linalg.norm(vector)
            second = np.maximum(
                networks.mixed[n] @ np.concatenate([active, vector * key, key]) + networks.mixed_bias[n], 0
            )
            both = np.concatenate([second, active])
            sought.append(networks.queries[n] @ both)
            said.append(networks.values[n] @ both)
        attention = np.exp(sought) / np.exp(sought).sum(0)
        told.append((attention * said).sum() + networks.bias[n])
    found = networks.log_odds(networks.seen(states.astype(np.float32)), behaviour[None].astype(np.float32))
    assert found[0] == pytest.approx(np.mean(told), rel=1e-3, abs=1e-3)
