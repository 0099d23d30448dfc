"""Retrieval after removal is retrieval from a store that never held what was removed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.attribution.retrieval import RankedMemory, dense_ranker, levenshtein_ranker
from audit.errors import UsageError
from tests.unit.attribution.world import make_entry


def memory_of(order, k=3):
    return RankedMemory([make_entry(number) for number in range(len(order))], lambda _: np.array(order), k)


def ids(entries):
    return [entry.entry_id for entry in entries]


def test_the_k_best_come_best_first():
    assert ids(memory_of([2, 0, 3, 1]).retrieve("q")) == ["m002", "m000", "m003"]


def test_removing_pulls_in_the_next_in_line():
    memory = memory_of([2, 0, 3, 1])
    assert ids(memory.retrieve("q", frozenset({"m002"}))) == ["m000", "m003", "m001"]
    assert ids(memory.retrieve("q", frozenset({"m002", "m000", "m003"}))) == ["m001"]
    assert ids(memory.retrieve("q", k=1)) == ["m002"]


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)), st.integers(1, 8))
def test_retrieval_after_removal_equals_retrieval_from_a_store_without_them(order, removed, k):
    names = frozenset(f"m{number:03d}" for number in removed)
    expected = [f"m{number:03d}" for number in order if number not in removed][:k]
    assert ids(memory_of(order, k).retrieve("q", names)) == expected


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)), st.integers(0, 7))
def test_removing_what_was_not_retrieved_changes_nothing(order, removed, other):
    memory = memory_of(order)
    names = frozenset(f"m{number:03d}" for number in removed)
    before = memory.retrieve("q", names)
    name = f"m{other:03d}"
    if name not in ids(before):
        assert memory.retrieve("q", names | {name}) == before


def test_ranking_is_asked_once_per_query():
    asked = []

    def rank(query):
        asked.append(query)
        return np.array([0, 1])

    memory = RankedMemory([make_entry(0), make_entry(1)], rank, 1)
    for removed in (frozenset(), frozenset({"m000"})):
        memory.retrieve("q", removed)
    assert asked == ["q"]


def test_members_are_found_by_id():
    memory = memory_of([0, 1])
    assert len(memory) == 2
    assert "m001" in memory
    assert "m002" not in memory
    assert memory.entry("m001") is memory.entries[1]
    with pytest.raises(KeyError):
        memory.entry("m002")


def test_a_memory_of_nothing_and_repeated_ids_are_refused():
    with pytest.raises(UsageError, match="must retrieve at least one"):
        memory_of([0], k=0)
    with pytest.raises(UsageError, match="share an entry id"):
        RankedMemory([make_entry(0), make_entry(0)], lambda _: np.array([0, 1]), 1)


@given(st.lists(st.text(max_size=6), min_size=1, max_size=8), st.text(max_size=6))
def test_edit_distance_ranks_nearest_first_and_ties_by_age(requests, query):
    def distance(a, b):  # the textbook definition
        row = list(range(len(b) + 1))
        for i, left in enumerate(a, 1):
            above, row = row, [i]
            for j, right in enumerate(b, 1):
                row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (left != right)))
        return row[-1]

    expected = sorted(range(len(requests)), key=lambda index: (distance(query, requests[index]), index))
    assert levenshtein_ranker(requests)(query).tolist() == expected


def test_dense_ranking_is_by_cosine_and_ties_by_age():
    vectors = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.6, 0.8]], np.float32)
    rank = dense_ranker(vectors, {"q": np.array([1.0, 0.0], np.float32)})
    assert rank("q").tolist() == [1, 2, 3, 0]


def test_dense_ties_survive_the_last_bit_of_a_float():
    # Equal texts embedded in other batches differ in the last bits; age decides all the same.
    near = np.nextafter(np.float32(0.5), np.float32(1))
    vectors = np.array([[0.5, 0.0], [near, 0.0]], np.float32)
    assert dense_ranker(vectors, {"q": np.array([1.0, 0.0], np.float32)})("q").tolist() == [0, 1]
