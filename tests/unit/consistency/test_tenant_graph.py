"""A tenant's graph that grows by what is asked for, against the whole one."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.consistency.distribution import SAMPLE
from memory_audit.consistency.tenant_graph import TenantGraph
from memory_audit.entry import Entry


def memory(number: int, text: str | None = None) -> Entry:
    return Entry(
        tenant="t", entry_id=f"m{number}", principal="p", source="agent", request="q",
        response=text or f"answer {number}", created_at_ms=1,
    )  # fmt: skip


def memories(count: int) -> list[Entry]:
    return [memory(number) for number in range(count)]


def vectors_of(texts):
    """A direction for each text, by the text alone."""
    rows = np.stack([np.random.default_rng(crc32(text.encode())).normal(size=6) for text in texts])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def weight(a: str, b: str) -> float:
    return crc32("\0".join(sorted((a, b))).encode()) % 1_000 / 1_000


def graph_of(entries, *, whole: bool = False, neighbours: int = 4) -> TenantGraph:
    graph = TenantGraph(entries, neighbours=neighbours, whole=whole)
    graph.embed(vectors_of(graph.texts), vectors_of([entry.response for entry in entries]))
    if whole:
        extend(graph, ())
    return graph


def extend(graph: TenantGraph, names) -> list[tuple[str, str]]:
    pairs = graph.plan(names)
    graph.observe(np.array([weight(*pair) for pair in pairs]))
    return pairs


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60), st.data())
def test_what_is_asked_for_bit_by_bit_is_as_in_the_whole_graph(count, data):
    entries = memories(count)
    if count > 4:
        entries[3:5] = [memory(3, "a copy"), memory(4, "a copy")]
    names = [entry.entry_id for entry in entries]
    whole, local = graph_of(entries, whole=True), graph_of(entries)
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memory_audit.consistency.tenant_graph.sampled", lambda entries, _: np.arange(min(entries, 5)))
        for part in data.draw(st.lists(st.lists(st.sampled_from(names)), min_size=1, max_size=4)):
            asked += extend(local, part)
            for name in [*part, *names[:5]]:
                assert local.cas(name) == whole.cas(name)
                assert local.density(name) == whole.density(name)
                assert local.near(local.places[name]) == whole.near(whole.places[name])
    assert len(asked) == len(set(asked)) == local.pairs <= whole.pairs
    assert set(local.edges()) <= set(whole.edges())
    known = set(local.compared())
    assert all((local.cas(name) is None) == (name not in known) for name in names)


def test_nothing_is_known_before_it_is_asked_for():
    graph = TenantGraph(memories(9), neighbours=4)
    assert (graph.cas("m1"), graph.density("m1"), graph.fits_in("m1"), graph.near(1)) == (None, None, None, [])
    assert (list(graph.compared()), list(graph.edges()), graph.pairs, graph.usual) == ([], [], 0, None)


def test_a_store_that_is_no_larger_than_the_sample_is_known_as_a_whole():
    entries = memories(30)
    local, whole = graph_of(entries), graph_of(entries, whole=True)
    extend(local, ["m3"])
    assert local.usual == whole.usual
    assert list(local.compared()) == [entry.entry_id for entry in entries]


def test_of_a_large_store_a_sample_tells_what_is_usual():
    entries = memories(3 * SAMPLE)
    local, whole = graph_of(entries), graph_of(entries, whole=True)
    extend(local, ["m3"])
    assert local.usual.sampled == SAMPLE
    assert abs(local.usual.median.value - whole.usual.median.value) <= local.usual.median.error
    assert SAMPLE <= len(list(local.compared())) <= SAMPLE + 1
    assert local.pairs < whole.pairs / 2
    assert local.fits_in("m3") == (local.cas("m3") < local.usual.median.value)


def test_a_flood_of_copies_is_one_node():
    alone = memories(40)
    flooded = [*alone, *(memory(100 + number, "answer 7") for number in range(200))]
    few, many = (graph_of(entries, whole=True) for entries in (alone, flooded))
    assert many.pairs == few.pairs
    for entry in alone:
        assert many.cas(entry.entry_id) == few.cas(entry.entry_id)
        assert many.density(entry.entry_id) == few.density(entry.entry_id)
    assert {many.cas(f"m{number}") for number in range(100, 300)} == {few.cas("m7")}
    assert many.usual.sampled == 240  # each entry counts


def test_every_pair_of_a_small_store_is_compared():
    entries = memories(9)
    graph = TenantGraph(entries, neighbours=2, all_pairs_below=9)
    graph.embed(vectors_of(graph.texts), vectors_of(graph.texts))
    assert len(extend(graph, ["m1"])) == 9 * 8 // 2
