"""A tenant's graph on disk gives back what was stored, to the last bit, in parts of any size."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit import parquet
from memory_audit.consistency.distribution import CasDistribution
from memory_audit.consistency.graph import build_graph
from memory_audit.consistency.neighbours import nearest
from memory_audit.consistency.stored_graph import PAIRS_SCHEMA, REPEATING, OwnedPairs, StoredGraph
from memory_audit.errors import UsageError


def built(seed: int, nodes: int, k: int, dimensions: int = 3):
    """Return a graph whose vectors lie on a grid, so that many similarities are ties."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, (nodes, dimensions)).astype(np.float32)
    vectors[np.abs(vectors).sum(axis=1) == 0, 0] = 1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = nearest(vectors, k)
    return build_graph(found, rng.random(len(found.pairs)))


def tables_of(graph, block: int) -> list[pa.Table]:
    """Return the files of a graph, as blocks of so many nodes write them, read again."""
    found, names = graph.neighbours, ids(graph.neighbours.size)
    owned, weight = OwnedPairs.of(found), dict(zip(map(tuple, found.pairs), graph.contradiction, strict=True))
    tables = []
    for first in range(0, found.size, block):
        part = owned.of_nodes(first, first + block)
        ends = [sorted(pair) for pair in zip(part.entry, part.neighbour, strict=True)]
        columns = [
            [names[node] for node in part.entry], [names[node] for node in part.neighbour], part.cosine,
            [weight[tuple(pair)] for pair in ends], part.place, part.place_back,
        ]  # fmt: skip
        table = pa.table([pa.array(column) for column in columns], names=PAIRS_SCHEMA.names).cast(PAIRS_SCHEMA)
        tables.append(parquet.read(parquet.write(table, repeating=REPEATING), PAIRS_SCHEMA, repeating=REPEATING))
    return tables


def ids(nodes: int) -> list[str]:
    return [f"m{node}" for node in range(nodes)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 12), st.integers(1, 50), st.integers(1, 50))
def test_what_is_read_is_what_was_stored(seed, nodes, k, block, part):
    graph = built(seed, nodes, k)
    tables = tables_of(graph, block)
    assert sum(map(len, tables)) == len(graph.contradiction)  # each pair once
    random.Random(seed).shuffle(tables)
    stored = StoredGraph(ids(nodes), graph.neighbours.lists.shape[1], lambda: tables)
    parts = list(stored.parts(part))
    assert [read.first for read in parts] == list(range(0, nodes, part))
    expected = {
        "lists": graph.neighbours.lists, "similarity": graph.neighbours.similarity[graph.neighbours.list_pairs],
        "contradiction": graph.contradiction[graph.neighbours.list_pairs], "cas": graph.cas, "density": graph.density,
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_array_equal(np.concatenate([getattr(read, name) for read in parts]), value)


@given(st.integers(0, 10**6), st.integers(2, 30))
def test_what_is_usual_counts_every_copy(seed, nodes):
    graph = built(seed, nodes, 4)
    copies = np.random.default_rng(seed).integers(1, 4, nodes)
    stored = StoredGraph(ids(nodes), graph.neighbours.lists.shape[1], lambda: tables_of(graph, 7))
    assert stored.usual(copies) == CasDistribution.of(np.repeat(graph.cas, copies), int(copies.sum()))


@pytest.mark.parametrize("change", ["a block is missing", "another memory", "a place too far"])
def test_what_is_not_the_graph_of_these_memories_is_refused(change):
    graph = built(0, 20, 4)
    tables, names = tables_of(graph, 5), ids(20)
    if change == "a block is missing":
        del tables[1]
    elif change == "another memory":
        names[3] = "stranger"
    else:
        tables[0] = tables[0].set_column(4, PAIRS_SCHEMA.field("place"), pa.array([9] * len(tables[0]), pa.int32()))
    with pytest.raises(UsageError, match="not that of these memories"):
        list(StoredGraph(names, 4, lambda: tables).parts())
