"""CAS and density against hand-made graphs and a slow definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.consistency.graph import build_graph
from memory_audit.consistency.neighbours import nearest
from memory_audit.errors import UsageError


def unit(n, d, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def on_circle(*degrees: float):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_cas_of_a_store_worked_by_hand():
    found = nearest(on_circle(0, 60, 120), 1)  # 0 and 2 look to 1; 1 is tied and takes 0
    assert found.pairs.tolist() == [[0, 1], [1, 2]]
    graph = build_graph(found, np.array([0.8, 0.2]))
    assert graph.cas.tolist() == pytest.approx([0.8 * 0.5, 0.8 * 0.5, 0.2 * 0.5], abs=1e-6)
    assert graph.density.tolist() == pytest.approx([0.5, 0.5, 0.5], abs=1e-6)


def test_opposite_vectors_add_no_inconsistency():
    assert build_graph(nearest(on_circle(0, 180), 1), np.array([1.0])).cas.tolist() == [0.0, 0.0]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 20), st.integers(1, 5), st.integers(0, 10_000))
def test_cas_equals_the_sum_of_eq_8(n, k, seed):
    found = nearest(unit(n, 4, seed), k)
    w = np.random.default_rng(seed).random(len(found.pairs))
    rows = {tuple(pair): row for row, pair in enumerate(found.pairs.tolist())}
    graph = build_graph(found, w)
    for i in range(n):
        terms = [
            w[rows[min(i, j), max(i, j)]] * max(found.similarity[rows[min(i, j), max(i, j)]], 0.0)
            for j in found.lists[i].tolist()
        ]
        assert graph.cas[i] == pytest.approx(math.fsum(terms))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 16), st.integers(0, 10_000))
def test_renumbering_the_entries_renumbers_the_scores(n, seed):
    rng = np.random.default_rng(seed)
    vectors, strength = unit(n, 4, seed), rng.random((n, n))
    order = rng.permutation(n)

    def cas(rows):
        found = nearest(vectors[rows], 3)
        ends = np.array(rows)[found.pairs]
        return build_graph(found, strength[ends.min(axis=1), ends.max(axis=1)]).cas

    assert cas(order.tolist()).tolist() == pytest.approx(cas(list(range(n)))[order].tolist())


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1, 1.1])
def test_weights_outside_0_to_1_are_refused(value):
    with pytest.raises(UsageError, match="contradiction weight 0 is"):
        build_graph(nearest(on_circle(0, 10), 1), np.array([value]))


def test_weights_that_do_not_fit_the_pairs_are_refused():
    with pytest.raises(UsageError, match="expected one per pair"):
        build_graph(nearest(on_circle(0, 10), 1), np.array([0.1, 0.2]))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_stores_have_scores(n):
    found = nearest(on_circle(*range(n)) if n else np.zeros((0, 2), dtype=np.float32), 5)
    graph = build_graph(found, np.zeros(len(found.pairs)))
    assert graph.cas.tolist() == [0.0] * n
