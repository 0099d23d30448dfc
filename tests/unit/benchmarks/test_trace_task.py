"""Behaviour of the trace task on a fake backbone and a data folder written for the test."""

from __future__ import annotations

import asyncio
import json

import pytest
from rich.console import Console

from benchmarks import trace_task
from benchmarks.attribution_peers.metered import MeteredBackbone
from benchmarks.resultfile import ResultFile
from benchmarks.trace_task import BLACKBOX, OURS, CaseMaker, state, trace_batch
from jobs.executor_local import LocalExecutor
from jobs.progress import Reporter
from models.fakes import FakeGenerator
from models.loading import ModelSpecs
from tests.unit.benchmarks.attribution_world import MARKER, write_data

SIZE = 8


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data")


@pytest.fixture
def backbone(tmp_path):
    def start():
        return FakeGenerator(marker=MARKER, poisoned="Answer:E", clean="Right:A")

    return MeteredBackbone(tmp_path / "answers.sqlite", start, "fake")


@pytest.fixture
def executor(backbone):
    made = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"), generator=backbone)
    yield made
    made.close()
    asyncio.run(backbone.close())


@pytest.fixture
def reporter():
    return Reporter(Console(quiet=True), quiet=True)


def test_a_case_is_five_memories_with_one_poison_near_the_top(data, executor):
    cases = CaseMaker(executor, data).batch(0, SIZE)
    assert len(cases) == SIZE
    for case in cases:
        five = case.memory.retrieve(case.query)
        assert len(five) == len(case.memory.entries) == 5
        assert [entry.entry_id in case.poison for entry in five].count(True) == 1
        assert {entry.source for entry in five} == {"agent"}
        assert len({entry.principal for entry in five}) == 5


def test_a_batch_is_the_same_whatever_was_made_before(data, executor):
    maker = CaseMaker(executor, data)
    first = [(case.query, case.poison, case.memory.entries) for case in maker.batch(3, SIZE)]
    maker.batch(1, SIZE)
    assert [(case.query, case.poison, case.memory.entries) for case in maker.batch(3, SIZE)] == first


def test_the_poison_that_brings_the_harm_is_ranked_first(data, executor, backbone, reporter):
    row = trace_batch(executor, backbone, CaseMaker(executor, data).batch(0, SIZE), 6, reporter)
    assert (row["asked"], row["cases"], row[OURS], row["missed"]) == (SIZE, 6, 6.0, [])
    # At most: with all and with none, odds of none, of all, and of each alone and each left out.
    assert 0 < row["calls"] <= 6 * (2 + 12)


def test_answers_without_harm_are_no_incidents(data, executor, reporter, tmp_path):
    harmless = MeteredBackbone(tmp_path / "other.sqlite", lambda: FakeGenerator(poisoned="Answer:A"), "other")
    quiet = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"), generator=harmless)
    row = trace_batch(quiet, harmless, CaseMaker(executor, data).batch(0, SIZE), 6, reporter)
    quiet.close()
    asyncio.run(harmless.close())
    assert (row["cases"], row["calls"], row[OURS]) == (0, 0, 0)


def test_the_bar_is_not_measured_before_all_cases_are_there(tmp_path):
    results = ResultFile("trace", "x", {}, folder=tmp_path)
    state(results, [{"cases": 5, OURS: 5.0, BLACKBOX: 1, "calls": 70, "computed_tokens": 700}], 100)
    recorded = json.loads((tmp_path / "trace.json").read_text())
    assert recorded["bars"][0]["met"] is None
    assert [(row["method"], row["hit_at_1"], row["calls"]) for row in recorded["rows"]] == [
        (OURS, 5.0, 70),
        (BLACKBOX, 1, 0),
    ]


@pytest.mark.parametrize(("right", "met"), [(99, True), (98.8, False)])
def test_the_bar_is_99_of_100(tmp_path, right, met):
    results = ResultFile("trace", "x", {}, folder=tmp_path)
    state(results, [{"cases": 100, OURS: right, "calls": 1, "computed_tokens": 1}], 100)
    assert json.loads((tmp_path / "trace.json").read_text())["bars"][0]["met"] is met


def test_memory_blackbox_traces_the_same_incidents_where_it_is_installed(data, executor, backbone, reporter):
    pytest.importorskip("memory_blackbox", reason="memory-blackbox is not installed")
    row = trace_batch(executor, backbone, CaseMaker(executor, data).batch(0, SIZE), 6, reporter)
    assert 0 <= row[BLACKBOX] <= 6
    assert trace_task.blackbox.installed()
