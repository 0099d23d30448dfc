"""Published methods beside ours as a whole, on a fake backbone and a small folder of our own words."""

from __future__ import annotations

import asyncio
import json

import pytest
from rich.console import Console

from benchmarks.attribution.minja.study import Study
from benchmarks.attribution.peers.metered import MeteredBackbone
from benchmarks.attribution.peers.methods import reading_with
from benchmarks.attribution.public_stores.stores import CONTRADICTIONS, PASSAGES, Asked, build_stores
from benchmarks.attribution.published_methods import CLEAN, METHODS, NO_HARM, OURS, Bench, Reader, compare, state
from benchmarks.harness.resultfile import ResultFile
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs
from tests.unit.benchmarks.planted_data import write_planted_data
from tests.unit.benchmarks.test_attribution_peers_published import FakeLikelihood

KEY = {"kind": PASSAGES, "poisons": 2, "seed": 0, "part": 0, "parts": 1}


@pytest.fixture
def bench_of(tmp_path):
    """Make benches that are closed afterwards; all write the same result file."""
    made = []

    def make(methods=METHODS, poisoned="HARM 1 HARM 2 HARM 3 HARM 4 HARM 5"):
        generator = FakeGenerator(poisoned=poisoned, clean="maker")
        meter = MeteredBackbone(tmp_path / f"{len(made)}.sqlite", lambda: generator, generator.model_id)
        executor = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"), generator=meter)
        made.append((executor, meter))
        return Bench(
            study=Study(executor, Reporter(Console(quiet=True), quiet=True)), meters=[meter], backbone="fake",
            readers=[Reader(name="fake", judge=reading_with(executor, meter), proxy=FakeLikelihood())],
            methods=methods, fresh=False, results=ResultFile("methods", "c", {}, folder=tmp_path),
        )  # fmt: skip

    yield make
    for executor, meter in made:
        executor.close()
        asyncio.run(meter.close())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_planted_data(tmp_path_factory.mktemp("data"))


def test_every_method_gets_the_same_events_and_a_second_start_continues(bench_of, data):
    (store,) = build_stores(data, Asked(store=PASSAGES, questions=3, benign=6, poisons=2))
    compare(bench_of([OURS]), KEY, store)
    bench = bench_of()
    compare(bench, KEY, store)
    compare(bench, KEY, store)
    rows = {row["method"]: row for row in bench.results.rows}
    assert len(rows) == len(bench.results.rows)
    assert {
        "ours", "leave-one-out", "RAGForensics, one pass (fake)", "RAGForensics, until the harm ends (fake)",
        "RAGOrigin, one pass (fake)", "RAGOrigin, until the harm ends (fake)", "TracLLM STC, true count",
        "TracLLM STC, above half",
    } <= rows.keys()  # fmt: skip
    assert {(row["events"], row["mattered"], row["poison"]) for row in rows.values()} == {(3, 3, 6)}
    assert rows[OURS]["there_removed"] == rows[OURS]["there"]
    assert (rows[OURS]["benign_removed"], rows[OURS]["hijacked_after"]) == (0, 0)
    assert rows["TracLLM STC, true count"]["benign_removed"] == 0
    assert rows["leave-one-out"]["removed"] == 0, "the poison is redundant"
    assert all(row["calls"] > 0 and row["prompt_tokens"] > 0 for row in rows.values() if "TracLLM" not in row["method"])


def test_a_store_without_harm_is_one_row(bench_of, data):
    (store,) = build_stores(data, Asked(store=PASSAGES, questions=3, benign=6, poisons=2))
    bench = bench_of(poisoned="fine")
    compare(bench, KEY, store)
    compare(bench, KEY, store)
    assert [row["method"] for row in bench.results.rows] == [NO_HARM]


def test_on_a_clean_store_origin_must_accuse_and_ours_does_not(bench_of, data):
    (store,) = build_stores(data, Asked(store=CONTRADICTIONS, questions=4, benign=6, poisons=0))
    assert not store.cell.poison
    bench = bench_of([OURS, "RAGOrigin"])
    bench.study.executor.backbone._raw = FakeGenerator(clean="yes")
    compare(bench, {**KEY, "kind": CLEAN, "poisons": 0}, store)
    rows = {row["method"]: row for row in bench.results.rows}
    assert rows[OURS]["events"] > rows[OURS]["mattered"] == 0
    assert rows[OURS]["removed"] == 0
    assert rows["RAGOrigin, one pass (fake)"]["benign_removed"] > 0
    state(bench.results, CLEAN, 0)
    assert bars(bench.results) == [True]


def test_the_bars_say_who_is_ahead_and_what_the_best_costs(tmp_path):
    results = ResultFile("methods", "c", {}, folder=tmp_path)
    row = {**KEY, "victims": 10, "there": 10, "there_removed": 9, "removed": 10, "poison_removed": 10,
           "computed_tokens": 100}  # fmt: skip
    results.add_row({**row, "method": OURS})
    state(results, PASSAGES, 2)
    assert bars(results) == [None]
    results.add_row({**row, "method": "cheap and bad", "there_removed": 5, "computed_tokens": 1})
    results.add_row({**row, "method": "as good", "computed_tokens": 200})
    state(results, PASSAGES, 2)
    assert bars(results) == [True, True]
    results.add_row({**row, "method": "finds all", "there_removed": 10, "removed": 40, "computed_tokens": 50})
    state(results, PASSAGES, 2)
    assert bars(results) == [False, True]
    units = [bar["unit"] for bar in json.loads(results.path.read_text())["bars"]]
    assert units == ["finds all", "x as good"]


def test_bars_wait_for_methods_on_all_parts(tmp_path):
    results = ResultFile("methods", "c", {}, folder=tmp_path)
    results.add_row({**KEY, "method": OURS, "victims": 10})
    results.add_row({**KEY, "method": OURS, "part": 1, "victims": 10})
    results.add_row({**KEY, "method": "half done", "victims": 10})
    state(results, PASSAGES, 2)
    assert bars(results) == []


def bars(results):
    return [bar["met"] for bar in json.loads(results.path.read_text())["bars"]]
