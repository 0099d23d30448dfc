"""Behaviour of the head to head as a whole, on a fake backbone and small data."""

from __future__ import annotations

import argparse
import asyncio

import pytest
from rich.console import Console

from benchmarks.attribution.minja.study import Study
from benchmarks.attribution.peers.__main__ import HALVES, LOO, OURS, Bench, _bars, _run_cell
from benchmarks.attribution.peers.metered import MeteredBackbone
from benchmarks.harness.resultfile import ResultFile
from memory_audit.errors import UsageError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs
from tests.unit.benchmarks.attribution_world import MARKER, write_data


@pytest.fixture
def bench_of(tmp_path):
    """Make benches that are closed afterwards; all write the same result file."""
    made = []
    data = write_data(tmp_path / "data")

    def make(methods, poisoned="Answer:E"):
        generator = FakeGenerator(marker=MARKER, poisoned=poisoned, clean="Right:A")
        backbone = MeteredBackbone(tmp_path / f"{len(made)}.sqlite", lambda: generator, generator.model_id)
        executor = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"), generator=backbone)
        options = argparse.Namespace(
            data=data, backbone="fake", rho=[0.5], seeds=[0], methods=methods, fresh=False, retrieval="dense", k=3,
            size=10, victims=3, poison="composed", one_writer=False, copies=1, held_out=1, probes=0,
        )  # fmt: skip
        study = Study(executor, Reporter(Console(quiet=True), quiet=True))
        results = ResultFile("peers", "x", {}, folder=tmp_path)
        made.append((executor, backbone))
        return Bench(options=options, study=study, executor=executor, backbone=backbone, results=results)

    yield make
    for executor, backbone in made:
        executor.close()
        asyncio.run(backbone.close())


def test_methods_are_compared_on_the_same_events_and_removal_count(bench_of):
    bench = bench_of(["set", "loo", "halves"])
    _run_cell(bench, 0.5, 0)
    rows = {row["method"]: row for row in bench.results.rows if "calls" in row}
    ended = {row["method"]: row["harm_ended"] for row in bench.results.rows if "harm_ended" in row}
    assert set(rows) == set(ended) == {OURS, LOO, HALVES}
    assert {row["events"] for row in rows.values()} == {3}
    ours = rows[OURS]
    assert (ours["top_n"]["removed"], ours["top_n"]["precision"], ours["top_n"]["recall"]) == (5, 1.0, 1.0)
    assert ours["own_rule"] == ours["top_n"]
    assert ended[OURS] == {"top_n": 3, "own_rule": 3}
    assert rows[LOO]["own_rule"]["removed"] == 0
    assert ended[LOO]["own_rule"] == 0
    assert rows[HALVES]["top_n"]["removed"] <= 5


def test_a_second_start_adds_only_what_is_missing(bench_of):
    _run_cell(bench_of(["set"]), 0.5, 0)
    again = bench_of(["set", "loo"])
    _run_cell(again, 0.5, 0)
    assert [row["method"] for row in again.results.rows] == [OURS, OURS, LOO, LOO]
    rows = again.results.rows
    _run_cell(again, 0.5, 0)
    assert again.results.rows == rows


def test_others_need_to_know_how_many_memories_ours_removes(bench_of):
    with pytest.raises(UsageError, match="run method set first"):
        _run_cell(bench_of(["loo"]), 0.5, 0)


def test_a_cell_without_harm_is_said_once(bench_of):
    bench = bench_of(["set", "loo"], poisoned="Answer:A")
    _run_cell(bench, 0.5, 0)
    _run_cell(bench, 0.5, 0)
    assert bench.results.rows == [{"rho": 0.5, "seed": 0, "method": "none: no harm was done", "events": 0}]


def test_the_bar_compares_calls_at_one_half(tmp_path):
    results = ResultFile("bars", "x", {}, folder=tmp_path)
    results.add_row({"rho": 0.5, "seed": 0, "method": OURS, "events": 5, "calls": 50})
    _bars(results)
    results.add_row({"rho": 0.5, "seed": 0, "method": LOO, "events": 5, "calls": 20})
    results.add_row({"rho": 0.2, "seed": 0, "method": LOO, "events": 5, "calls": 99})
    _bars(results)
    assert ResultFile("bars", "x", {}, folder=tmp_path).rows == results.rows
    assert '"value": 2.5' in results.path.read_text()
