"""Neighbours against a slow definition, with ties, tiny stores and the faiss path."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.consistency import neighbours as module
from memory_audit.consistency.neighbours import nearest
from memory_audit.errors import ModelError, UsageError


def unit(n, d, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def slow_lists(vectors, k):
    wide = vectors.astype(np.float64)
    return [
        sorted(
            (j for j in range(len(wide)) if j != i),
            key=lambda j: (-round(float(wide[i] @ wide[j]) / module.SIMILARITY_STEP), j),
        )[:k]
        for i in range(len(wide))
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 24), st.integers(1, 6), st.integers(0, 10_000), st.booleans())
def test_exact_search_equals_the_definition(n, k, seed, doubled):
    vectors = unit(n, 5, seed)
    if doubled:
        vectors[n // 2 :] = vectors[: n - n // 2]  # exact ties
    assert nearest(vectors, k).lists.tolist() == slow_lists(vectors, min(k, n - 1))


def test_small_blocks_change_nothing(monkeypatch):
    vectors = unit(50, 8)
    whole = nearest(vectors, 4)
    monkeypatch.setattr(module, "_BLOCK_FLOATS", 50 * 7)
    parts = nearest(vectors, 4)
    assert parts.lists.tolist() == whole.lists.tolist()
    assert parts.pairs.tolist() == whole.pairs.tolist()


def test_each_unordered_pair_comes_once_and_joins_its_neighbours():
    found = nearest(unit(40, 6), 5)
    pairs = [tuple(pair) for pair in found.pairs.tolist()]
    assert pairs == sorted(set(pairs))
    assert all(i < j for i, j in pairs)
    for i in range(40):
        for j, row in zip(found.lists[i], found.list_pairs[i], strict=True):
            assert pairs[row] == (min(i, j), max(i, j))
    assert {(min(i, j), max(i, j)) for i in range(40) for j in found.lists[i].tolist()} == set(pairs)


def test_identical_vectors_are_ordered_by_index():
    found = nearest(np.tile(unit(1, 384), (300, 1)), 3)
    assert found.lists[0].tolist() == [1, 2, 3]
    assert found.lists[299].tolist() == [0, 1, 2]
    assert found.similarity.tolist() == pytest.approx([1.0] * len(found.pairs))


@pytest.mark.parametrize(("n", "pairs"), [(0, 0), (1, 0), (2, 1)])
def test_tiny_stores(n, pairs):
    found = nearest(unit(n, 4) if n else np.zeros((0, 4), dtype=np.float32), 5)
    assert found.pairs.shape == (pairs, 2)
    assert found.size == n


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 2.0])
def test_vectors_that_are_not_unit_length_are_refused(value):
    vectors = unit(5, 3)
    vectors[3] = value
    with pytest.raises(ModelError, match="embedding 3 has norm"):
        nearest(vectors, 2)


@pytest.mark.parametrize("limit", [module.EXACT_LIMIT, 0])
@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(1, 6), st.integers(0, 10_000), st.data())
def test_some_entries_have_the_neighbours_that_they_have_among_all(limit, n, k, seed, data):
    vectors = unit(n, 5, seed)
    whole = nearest(vectors, k)
    parts = data.draw(st.lists(st.lists(st.integers(0, n - 1), unique=True), min_size=1, max_size=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EXACT_LIMIT", limit)
        asked, found = set(), nearest(vectors, k, rows=np.zeros(0, np.int64))
        for part in parts:
            fresh = [row for row in part if row not in asked]
            found = found.beside(nearest(vectors, k, rows=np.array(fresh, np.int64)))
            asked.update(fresh)
    assert set(found.rows.tolist()) == asked
    assert found.lists.tolist() == whole.lists[found.rows].tolist()
    similarity = dict(zip(map(tuple, whole.pairs.tolist()), whole.similarity.tolist(), strict=True))
    assert found.similarity.tolist() == [similarity[pair] for pair in map(tuple, found.pairs.tolist())]
    assert found.pairs[found.list_pairs].tolist() == [
        [[min(row, other), max(row, other)] for other in others]
        for row, others in zip(found.rows.tolist(), found.lists.tolist(), strict=True)
    ]


def test_k_below_one_is_refused():
    with pytest.raises(UsageError, match="k is 0"):
        nearest(unit(3, 3), 0)


def test_faiss_finds_nearly_all_true_neighbours_of_clustered_vectors():
    pytest.importorskip("faiss")
    rng = np.random.default_rng(1)
    rows = np.repeat(unit(60, 32, 2), 50, axis=0) + rng.normal(scale=0.08, size=(3_000, 32))
    vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    fast, exact = nearest(vectors, 5, method="faiss"), nearest(vectors, 5, method="exact")
    hits = sum(len(set(a) & set(b)) for a, b in zip(fast.lists.tolist(), exact.lists.tolist(), strict=True))
    assert hits / (3_000 * 5) > 0.99
    assert nearest(vectors, 5, method="faiss").lists.tolist() == fast.lists.tolist()


def test_faiss_path_fills_every_list_even_where_cells_are_small():
    pytest.importorskip("faiss")
    vectors = unit(200, 4)  # probed cells hold fewer than 199 others, so rows fall back to the full search
    assert nearest(vectors, 199, method="faiss").lists.tolist() == nearest(vectors, 199, method="exact").lists.tolist()


def test_without_faiss_the_exact_search_answers(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    vectors = unit(30, 4)
    assert nearest(vectors, 3, method="faiss").lists.tolist() == nearest(vectors, 3, method="exact").lists.tolist()
