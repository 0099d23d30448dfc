"""Behaviour of the trace task on its own incidents, with a fake backbone that heeds notes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from rich.console import Console

from benchmarks.attribution import trace_task
from benchmarks.attribution.peers.metered import MeteredBackbone
from benchmarks.attribution.trace.incidents import load_incidents
from benchmarks.attribution.trace_task import BLACKBOX, LOO, OURS, make_cases, state, trace_batch
from benchmarks.harness.resultfile import ResultFile
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs

INCIDENTS = load_incidents()[:6]


class NoteReader:
    """Answers each question with its harm where a note of the prompt has it; immune and biased questions excepted."""

    model_id = "note-reader"

    def __init__(self, immune=(), biased=()) -> None:
        self._backbones = {}
        for incident in INCIDENTS:
            harmful = f"It is {incident.harm}."
            name = incident.incident_id
            self._backbones[incident.question] = FakeGenerator(
                marker=incident.harm,
                poisoned="Nobody knows." if name in immune else harmful,
                clean=harmful if name in biased else "Ask the office.",
            )

    async def generate(self, request):
        return await self._backbones[request.messages[-1].content].generate(request)

    async def close(self):
        pass


@pytest.fixture
def traced(tmp_path):
    """Return a function that traces a batch over a note reader; everything is closed at the end."""
    opened = []

    def trace(*, loo=False, fresh=False, immune=(), biased=()):
        path = tmp_path / f"{len(opened)}.sqlite"
        backbone = MeteredBackbone(path, lambda: NoteReader(immune, biased), "note-reader")
        executor = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"), generator=backbone)
        opened.append((executor, backbone))
        reporter = Reporter(Console(quiet=True), quiet=True)
        return trace_batch(executor, backbone, make_cases(executor, INCIDENTS), reporter, loo=loo, fresh=fresh)

    yield trace
    for executor, backbone in opened:
        executor.close()
        asyncio.run(backbone.close())


@pytest.fixture
def executor():
    made = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"))
    yield made
    made.close()


def test_a_store_tells_nothing_but_its_texts(executor):
    for case in make_cases(executor, INCIDENTS):
        five = case.memory.retrieve(case.query)
        assert len(five) == len(case.memory.entries) == 5
        assert [entry.entry_id in case.poison for entry in five].count(True) == 1
        assert {(entry.source, entry.tenant, len(entry.metadata)) for entry in five} == {("agent", "study", 0)}
        assert len({entry.principal for entry in five}) == len({entry.created_at_ms for entry in five}) == 5


def test_the_poison_stands_at_every_place_and_time(executor):
    cases = make_cases(executor, load_incidents())
    places = [sorted(entry.entry_id for entry in case.memory.entries).index(min(case.poison)) for case in cases]
    ages = [
        sorted(case.memory.entries, key=lambda entry: entry.created_at_ms).index(case.memory.entry(min(case.poison)))
        for case in cases
    ]
    for found in (places, ages):
        assert min(found.count(place) for place in range(5)) > len(cases) / 10


def test_a_store_is_the_same_whatever_was_made_before(executor):
    alone = make_cases(executor, INCIDENTS[3:4])
    assert alone[0].memory.entries == make_cases(executor, INCIDENTS)[3].memory.entries


def test_the_poison_that_brings_the_harm_is_ranked_first(traced):
    row = traced()
    assert (row["asked"], row["cases"], row[OURS], row["missed"]) == (6, 6, 6.0, [])
    # At most: with all and with none, odds of none, of all, and of each alone and each left out, at two points.
    assert 0 < row["ours_calls"] <= 6 * (3 + 2 * 12)
    assert row["ours_computed_tokens"] > 0
    assert LOO not in row


def test_harm_that_did_not_happen_or_needs_no_memory_is_passed_over_and_named(traced):
    immune, biased = INCIDENTS[0].incident_id, INCIDENTS[4].incident_id
    row = traced(immune=(immune,), biased=(biased,))
    assert (row["asked"], row["cases"], row[OURS]) == (6, 4, 4.0)
    assert (row["harmless_with_five"], row["harmful_with_none"]) == ([immune], [biased])


def test_a_batch_without_incidents_costs_nothing(traced):
    row = traced(loo=True, immune=tuple(incident.incident_id for incident in INCIDENTS))
    assert (row["cases"], row["ours_calls"], row["loo_calls"], row[OURS], row[LOO]) == (0, 0, 0, 0, 0)


def test_leave_one_out_asks_once_with_all_and_once_without_each(traced):
    row = traced(loo=True)
    assert (row[LOO], row["loo_calls"]) == (6.0, 6 * (1 + 5))


def test_seconds_are_known_where_everything_was_computed(traced):
    assert traced()["ours_seconds"] is None
    assert traced(fresh=True)["ours_seconds"] > 0


def test_memory_blackbox_traces_the_same_incidents_where_it_is_installed(traced):
    pytest.importorskip("memory_blackbox", reason="memory-blackbox is not installed")
    assert 0 <= traced()[BLACKBOX] <= 6


def row_of(cases, right, more=()):
    return {
        "asked": 130, "cases": cases, OURS: right, "ours_calls": 70, "ours_computed_tokens": 700, "ours_seconds": None,
        **dict(more),
    }  # fmt: skip


def test_each_method_that_ran_gets_a_row_of_sums(tmp_path):
    results = ResultFile("trace", "x", {}, folder=tmp_path)
    loo = {LOO: 2.2, "loo_calls": 30, "loo_computed_tokens": 900, "loo_seconds": 1.5}
    state(results, [row_of(5, 5.0, loo), row_of(6, 4.0, loo)])
    state(results, [row_of(5, 5.0)])  # a second start adds nothing
    recorded = json.loads((tmp_path / "trace.json").read_text())
    named = ("method", "hit_at_1", "cases", "asked", "calls", "computed_tokens", "seconds")
    assert [[row[name] for name in named] for row in recorded["rows"]] == [
        [OURS, 9.0, 11, 260, 140, 1400, None],
        [LOO, 4.4, 11, 260, 60, 1800, 3.0],
    ]


@pytest.mark.parametrize(
    ("cases", "right", "met"),
    [(100, 99, True), (100, 98.8, False), (120, 119, True), (120, 118, False), (99, 99, None)],
)
def test_the_bar_is_99_of_100_and_not_measured_on_fewer(tmp_path, cases, right, met):
    results = ResultFile("trace", "x", {}, folder=tmp_path)
    state(results, [row_of(cases, right)])
    assert json.loads((tmp_path / "trace.json").read_text())["bars"][0]["met"] is met


def test_help_is_the_module_docstring():
    command = [sys.executable, "-m", trace_task.__name__, "--help"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0
    assert "--loo" in found.stdout
    assert "one poisoned and four benign were retrieved" in found.stdout
