"""Whole graphs made block by block, without Ray: equal to a graph made at once, kept apart by tenant, asked once."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.consistency.entailment import plan_pairs, weights
from memory_audit.entry import Entry
from memory_audit.errors import VerificationError
from memory_audit.jobs.graph.blocks import StoreGraphs, compare, whole_graph
from memory_audit.jobs.graph.graph_folder import GraphFolder
from memory_audit.jobs.run.run_seal import Codes
from memory_audit.models.fakes import FakeEmbedder, FakeEntailment
from tests.audit_world import CONFIG, NOW_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WORDS = ("refund", "never", "window", "thirty", "days", "order", "12", "14", "not", "desk", "open", "parcel")


class Snapshot:
    """Stands for a verified snapshot: entries by tenant."""

    def __init__(self, stores: Mapping[str, Sequence[Entry]]) -> None:
        self.stores = stores

    def entries(self, tenant: str) -> Sequence[Entry]:
        if not self.stores[tenant]:
            raise VerificationError("damaged")
        return self.stores[tenant]


class Counting(FakeEntailment):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def probabilities(self, pairs):
        self.asked += pairs
        return super().probabilities(pairs)


def store(tenant: str, seed: int, entries: int) -> list[Entry]:
    """Draw memories of few words, so that some are copies and many are as near as others."""
    rng = random.Random(f"{tenant}{seed}")
    return [
        Entry(
            tenant=tenant, entry_id=f"m{number}", principal="p", source="agent", request=f"{tenant}?",
            response=" ".join(rng.choices(WORDS, k=rng.randint(1, 5))), created_at_ms=NOW_MS,
        )
        for number in range(entries)
    ]  # fmt: skip


class CountingEmbedder(FakeEmbedder):
    """Counts what it was asked."""

    asked = 0

    def embed(self, texts):
        self.asked += len(texts)
        return super().embed(texts)


def folder_of(path: Path, nli) -> GraphFolder:
    models = {"embedder": FakeEmbedder().model_id, "nli": nli.model_id}
    return GraphFolder(path=path, codes=Codes(b"secret", {"run": "1"}), models=models)


def made(path: Path, stores, nli, *, order=None, nodes: int = 3, config=CONFIG, earlier=None, embedder=None):
    """Make all graphs, and return their folder."""
    folder = folder_of(path, nli)
    graphs = StoreGraphs(
        snapshot=Snapshot(stores), config=config, folder=folder, block_nodes=nodes, earlier=earlier
    )  # fmt: skip
    for tenant in order or stores:
        for block in graphs.blocks(tenant, embedder or FakeEmbedder()):
            compare(block, folder, nli)
    return folder


def at_once(entries: Sequence[Entry], config=CONFIG):
    """Make a graph as a local audit makes it."""
    graph = whole_graph(entries, config)
    responses = FakeEmbedder().embed([entry.response for entry in entries])
    graph.embed(FakeEmbedder().embed(graph.texts), responses)
    graph.observe(weights(FakeEntailment().probabilities(plan_pairs(graph.plan(())))))
    return graph


def bytes_of(path: Path) -> dict[str, str]:
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file()
    }


def says(graph) -> list:
    """Return all that a graph tells."""
    ids = [entry.entry_id for entry in graph.entries]
    return [
        [(graph.cas(name), graph.density(name), graph.fits_in(name)) for name in ids], list(graph.edges()),
        [graph.near(place) for place in range(len(ids))], list(graph.compared()), graph.usual, graph.pairs,
    ]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 30), min_size=1, max_size=3), st.sampled_from([0, 12]), st.data())
def test_a_graph_made_in_blocks_is_the_graph_made_at_once_whatever_the_order(tmp_path_factory, seed, sizes, all_, data):
    stores = {f"t{number}": store(f"t{number}", seed, size) for number, size in enumerate(sizes)}
    config = replace(CONFIG, all_pairs_below=all_)
    path, other, nli = tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b"), Counting()
    folder = made(path, stores, nli, nodes=data.draw(st.integers(1, 40)), config=config)
    for tenant, entries in stores.items():
        graph = whole_graph(entries, config)
        assert folder.is_complete(tenant)
        graph.recall(folder.graph(tenant, graph), FakeEmbedder().embed([entry.response for entry in entries]))
        expected = at_once(entries, config)
        assert says(graph) == says(expected)
        assert folder.graph(tenant, graph).usual(graph.copies) == expected.usual
        np.testing.assert_array_equal(graph.responses, expected.responses)
    assert len(set(nli.asked)) == len(nli.asked)
    assert all(premise.split("?")[0] == hypothesis.split("?")[0] for premise, hypothesis in nli.asked)
    for nodes, order in ((5, list(stores)), (5, data.draw(st.permutations(list(stores))))):
        made(path if order == list(stores) else other, stores, FakeEntailment(), order=order, nodes=nodes)
    rest = {name: digest for name, digest in bytes_of(other).items() if bytes_of(path).get(name) != digest}
    assert rest == {}


def test_what_is_on_disk_is_not_asked_again(tmp_path):
    stores = {"a": store("a", 1, 40), "b": store("b", 2, 9)}
    first, again = Counting(), Counting()
    made(tmp_path, stores, first)
    before = bytes_of(tmp_path)
    made(tmp_path, stores, again)
    assert first.asked
    assert (again.asked, bytes_of(tmp_path)) == ([], before)


@pytest.mark.parametrize("harm", ["gone", "damaged", "of another run", "of another model"])
def test_a_block_that_this_run_did_not_write_is_asked_again(tmp_path, harm):
    stores = {"a": store("a", 1, 40)}
    whole = Counting()
    folder = made(tmp_path, stores, whole)
    block = folder.blocks("a")[2]
    (path,) = tmp_path.rglob(f"pairs-{block.first}-{block.end}-*.parquet")
    again = Counting()
    if harm == "damaged":
        path.write_bytes(path.read_bytes()[:-9] + b"damage!!!")
        assert folder.pairs(block) is None
    elif harm == "of another model":
        again.model_id = "another"
    elif harm == "gone":
        path.unlink()
        assert not folder.is_complete("a")
    else:
        path.rename(path.with_name(path.name.replace(path.stem[-32:], "0" * 32)))
        assert folder.pairs(block) is None
    made(tmp_path, stores, again)
    share = len(again.asked) / len(whole.asked)
    assert share == 1 if harm == "of another model" else 0 < share < 0.2


def test_a_night_asks_for_the_neighbourhoods_of_what_is_new_and_finds_what_a_full_run_finds(tmp_path):
    entries = store("a", 1, 200)
    changed = [replace(entries[9], response="another thing under this id"), *entries[12:], *store("a", 7, 203)[-3:]]
    first, second, whole, embedder = Counting(), Counting(), Counting(), CountingEmbedder()
    made(tmp_path / "1", {"a": entries}, first)
    earlier = folder_of(tmp_path / "1", first)
    folder = made(tmp_path / "2", {"a": changed}, second, earlier=earlier, embedder=embedder)
    made(tmp_path / "whole", {"a": changed}, whole)
    assert bytes_of(tmp_path / "2") == bytes_of(tmp_path / "whole")
    assert folder.is_complete("a")
    assert 0 < len(second.asked) < 0.3 * len(whole.asked)
    assert {text for pair in second.asked for text in pair} >= {changed[0].text}
    assert 1 <= embedder.asked <= 8  # some are the first of their copies now
    other = Counting()
    other.model_id = "another"
    made(tmp_path / "3", {"a": changed}, other, earlier=folder_of(tmp_path / "1", other))
    assert len(other.asked) == len(whole.asked)


def test_a_tenant_that_cannot_be_read_has_no_graph_and_keeps_no_other_from_it(tmp_path):
    folder = made(tmp_path, {"a": store("a", 1, 5), "bad": [], "c": store("c", 1, 1)}, FakeEntailment())
    assert [folder.is_complete(tenant) for tenant in ("a", "bad", "c")] == [True, False, True]


def test_no_name_of_a_tenant_becomes_a_path(tmp_path):
    made(tmp_path / "graph", {"../../x": store("../../x", 1, 5)}, FakeEntailment())
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
