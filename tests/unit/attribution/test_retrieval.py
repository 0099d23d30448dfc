"""Retrieval after removal is retrieval from a store that never held what was removed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.replays.retrieval import RankedMemory, dense_ranker, levenshtein_ranker
from memory_audit.errors import UsageError
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


def test_what_the_agent_logged_comes_first_in_its_order_and_number():
    memory = memory_of([2, 0, 3, 1])
    assert memory.context("q", logged=("m001", "m003")) == ("m001", "m003")
    assert memory.context("q", logged=("m001", "m003", "m000", "m002")) == ("m001", "m003", "m000", "m002")
    assert ids(memory.retrieve("q", k=3, logged=("m001",))) == ["m001", "m002", "m000"]


def test_the_next_in_line_takes_the_place_of_a_logged_memory_that_is_left_out_or_gone_from_the_store():
    memory = memory_of([2, 0, 3, 1])
    assert memory.context("q", frozenset({"m001"}), logged=("m001", "m003")) == ("m003", "m002")
    assert memory.context("q", logged=("gone", "m003")) == ("m003", "m002")
    assert memory.context("q", logged=("gone",)) == ("m002",)


def test_an_agent_that_logged_no_memory_had_none():
    memory = memory_of([2, 0, 3, 1])
    assert memory.retrieve("q", logged=()) == ()
    assert ids(memory.unused("q", 4, logged=())) == ["m002", "m000", "m003", "m001"]
    assert set(ids(memory.drawn("q", 4, logged=()))) == {"m000", "m001", "m002", "m003"}


def test_one_query_with_different_logs_is_answered_by_each_of_them():
    memory = memory_of([2, 0, 3, 1], k=2)
    assert [memory.context("q", logged=log) for log in (("m001",), None, ("m003",), ())] == [
        ("m001",), ("m002", "m000"), ("m003",), (),
    ]  # fmt: skip


LOGS = st.lists(st.integers(0, 9), unique=True).map(lambda numbers: tuple(f"m{number:03d}" for number in numbers))
"""Of entries 0 to 7 and of two that are gone from the store."""


@given(st.permutations(range(8)), LOGS, st.sets(st.integers(0, 7)))
def test_retrieval_after_removal_is_that_of_a_log_and_a_store_without_them(order, logged, removed):
    names = frozenset(f"m{number:03d}" for number in removed)
    ranked = [f"m{number:03d}" for number in order]
    line = [name for name in logged if name in ranked] + [name for name in ranked if name not in logged]
    expected = [name for name in line if name not in names][: len(logged)]
    assert list(memory_of(order).context("q", names, logged=logged)) == expected


@given(st.permutations(range(8)), LOGS, st.integers(0, 9))
def test_control_memories_are_never_what_is_retrieved(order, logged, most):
    memory = memory_of(order)
    retrieved = set(memory.context("q", logged=logged))
    for found in (ids(memory.unused("q", most, logged=logged)), ids(memory.drawn("q", most, logged=logged))):
        assert len(found) == len(set(found)) == min(most, 8 - len(retrieved))
        assert retrieved.isdisjoint(found)


@given(st.permutations(range(8)), st.integers(1, 8), st.sets(st.integers(0, 7)))
def test_a_log_of_what_the_audit_retrieves_itself_changes_nothing(order, k, removed):
    memory, names = memory_of(order, k), frozenset(f"m{number:03d}" for number in removed)
    logged = memory.context("q")
    assert memory.context("q", names, logged=logged) == memory.context("q", names)
    assert memory.unused("q", 3, logged=logged) == memory.unused("q", 3)
    assert memory.drawn("q", 3, logged=logged) == memory.drawn("q", 3)


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
