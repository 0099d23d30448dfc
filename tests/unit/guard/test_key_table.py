"""Keys of many tombstones as one matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.guard.blocks.key_table import FAR, KeyTable
from memory_audit.guard.blocks.semantic_key import SemanticKey


def table(counts, seed=0, dimensions=5):
    """Tombstones with so many keys each, and one key of another model."""
    random = np.random.default_rng(seed)
    keys = [[SemanticKey.of(row / np.linalg.norm(row), "m") for row in random.normal(size=(count, dimensions))]
            for count in counts]  # fmt: skip
    for mine in keys:
        mine.append(SemanticKey.of(np.eye(3, dtype=np.float32)[0], "other"))
    return KeyTable(keys, "m")


ROUNDED = 5**0.5 / 2 / 127 / 254
"""Half a step in each of five components, at the worst."""

COUNTS = st.lists(st.integers(0, 4), min_size=1, max_size=6)


@given(COUNTS, st.integers(0, 1_000))
def test_the_largest_of_a_tombstones_keys_counts(counts, seed):
    held = table(counts, seed)
    assert held.vectors.shape == (sum(counts), 5 if sum(counts) else 0)
    values = np.random.default_rng(seed).normal(size=sum(counts)).astype(np.float32)
    found = held.largest(values, np.nan)
    start = 0
    for number, count in enumerate(counts):
        mine = values[start : start + count]
        start += count
        assert np.isnan(found[number]) if not count else found[number] == mine.max()


@given(COUNTS.filter(any), st.integers(0, 1_000))
def test_similarity_is_the_cosine_with_the_nearest_key(counts, seed):
    held = table(counts, seed)
    write = np.random.default_rng(seed + 1).normal(size=5).astype(np.float32)
    write /= np.linalg.norm(write)
    expected = held.largest(held.vectors @ write, FAR)
    assert held.similarity(write[None])[0] == pytest.approx(expected, abs=ROUNDED)


@given(st.integers(1, 4), st.integers(0, 1_000))
def test_many_writes_are_compared_as_one_at_a_time(count, seed):
    held = table([1, 2, 0, 1], seed)
    writes = np.random.default_rng(seed + 1).normal(size=(count, 5)).astype(np.float32)
    assert (held.similarity(writes) == np.concatenate([held.similarity(row[None]) for row in writes])).all()


def test_a_vector_that_points_nowhere_is_near_nothing():
    assert (table([1, 1]).similarity(np.zeros((1, 5), np.float32)) == 0).all()


def test_a_table_without_keys_has_none_to_compare():
    held = table([0, 0])
    assert held.vectors.shape[0] == 0
    assert np.isnan(held.largest(np.zeros(0, np.float32), np.nan)).all()
    assert (held.similarity(np.ones((2, 5), np.float32)) == FAR).all()
