"""A tenant's graph through the executor, past what the run folder knows."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from memory_audit.errors import ModelError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.graphs import consistency_graphs
from memory_audit.jobs.run.reuse import EarlierRun
from memory_audit.jobs.run.run_folder import RunFolder
from memory_audit.models.fakes import FakeEmbedder, FakeEntailment
from memory_audit.request import RUN_FORMAT
from tests.audit_world import CONFIG, FAKES, entries_of, entry

FULL = dataclasses.replace(CONFIG, graph="full")


class CountedEntailment(FakeEntailment):
    """Counts questions, and dies after some."""

    asked = 0

    def __init__(self, pairs_left: int) -> None:
        self._left = pairs_left

    def probabilities(self, pairs):
        if self._left < len(pairs):
            raise ModelError("the NLI model died")
        self._left -= len(pairs)
        self.asked += len(pairs)
        return super().probabilities(pairs)


class CountedEmbedder(FakeEmbedder):
    """Counts texts."""

    embedded = 0

    def embed(self, texts):
        self.embedded += len(texts)
        return super().embed(texts)


class Counting(LocalExecutor):
    """Has models that count what they are asked."""

    def __init__(self, pairs_left: int = 10**6) -> None:
        super().__init__(FAKES)
        self._counted = CountedEntailment(pairs_left), CountedEmbedder()
        self.entailment, self.embedder = self._counted

    @property
    def asked(self):
        return self._counted[0].asked

    @property
    def embedded(self):
        return self._counted[1].embedded


def build(tmp_path, executor, config=FULL, entries=None, earlier=None):
    run = RunFolder(tmp_path / "run", {"format": RUN_FORMAT}, earlier=earlier)
    entries = entries_of("globex") if entries is None else entries
    return consistency_graphs({"globex": entries}, config, executor, run)["globex"]


def cas(graph):
    return {name: graph.cas(name) for name in graph.compared()}


def test_each_pair_is_asked_once_in_both_directions_and_never_again(tmp_path):
    first, second = Counting(), Counting()
    graph = build(tmp_path, first)
    assert first.asked == 2 * graph.pairs
    again = build(tmp_path, second)
    assert second.asked == 0
    assert cas(again) == cas(graph)


def test_a_graph_that_was_cut_off_continues(tmp_path, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.run.graphs.PAIRS_PER_WRITE", 5)
    whole = Counting()
    graph = build(tmp_path / "whole", whole)
    with pytest.raises(ModelError):
        build(tmp_path / "cut", Counting(pairs_left=24))
    rest = Counting()
    assert cas(build(tmp_path / "cut", rest)) == cas(graph)
    assert rest.asked == whole.asked - 20


def test_small_stores_can_have_every_pair(tmp_path):
    entries = entries_of("acme")
    executor = Counting()
    build(tmp_path, executor, dataclasses.replace(FULL, all_pairs_below=len(entries)), entries)
    assert executor.asked == len(entries) * (len(entries) - 1)


def test_a_store_of_one_entry_has_a_graph_without_edges(tmp_path):
    entries = [entry("acme", "m1", "q", "a")]
    built = build(tmp_path, Counting(), entries=entries)
    assert built.pairs == 0


def test_each_text_is_embedded_once_and_never_again(tmp_path):
    first, second = Counting(), Counting()
    entries = entries_of("globex")
    built = build(tmp_path, first)
    assert first.embedded == len({entry.text for entry in entries} | {entry.response for entry in entries})
    assert build(tmp_path, second).responses.tolist() == built.responses.tolist()
    assert second.embedded == 0


def test_another_night_pays_for_what_is_new(tmp_path):
    last_night = entries_of("globex")
    whole, first, second = Counting(), Counting(), Counting()
    build(tmp_path / "last", first, entries=last_night)
    tonight = [*last_night, entry("globex", "new", "What is the refund window for a tent?", "Thirty days.")]
    graph = build(tmp_path / "whole", whole, entries=tonight)
    again = build(tmp_path / "tonight", second, entries=tonight, earlier=EarlierRun(tmp_path / "last" / "run"))
    assert cas(again) == cas(graph)
    assert second.embedded == 2
    assert 0 < second.asked < whole.asked / 2


def test_what_another_model_said_is_not_taken_over(tmp_path):
    first = Counting()
    build(tmp_path / "last", first)
    for role in ("nli", "embedder"):
        models = json.loads((tmp_path / "last" / "run" / "models.json").read_text())
        (tmp_path / "last" / "run" / "models.json").write_text(json.dumps({**models, role: "another@1"}))
        executor = Counting()
        build(tmp_path / role, executor, earlier=EarlierRun(tmp_path / "last" / "run"))
        assert (executor.asked, executor.embedded) == ((first.asked, 0) if role == "nli" else (0, first.embedded))
        (tmp_path / "last" / "run" / "models.json").write_text(json.dumps(models))


def test_tenants_share_questions_and_never_a_pair(tmp_path):
    stores = {tenant: entries_of(tenant) for tenant in ("acme", "globex")}
    executor, run = Counting(), RunFolder(tmp_path / "run", {"a": "b"})
    graphs = consistency_graphs(stores, FULL, executor, run)
    for tenant, entries in stores.items():
        alone = build(tmp_path / tenant, Counting(), entries=entries)
        assert cas(graphs[tenant]) == cas(alone)
        assert len(cas(graphs[tenant])) == len(entries)
    pairs = sum(graph.pairs for graph in graphs.values())
    assert executor.asked < 2 * pairs  # both tenants hold the same notes: what was asked of one is known of the other


def test_what_is_no_unit_vector_is_refused_and_not_kept(tmp_path):
    class Broken(FakeEmbedder):
        def embed(self, texts):
            vectors = super().embed(texts)
            vectors[:1] = np.nan
            return vectors

    executor = LocalExecutor(FAKES)
    executor.embedder = Broken()
    with pytest.raises(ModelError, match="norm"):
        build(tmp_path, executor)
    assert not list((tmp_path / "run" / "embedding").iterdir())
