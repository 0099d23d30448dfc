"""The cost benchmark: k memories of which one is poison, counted the same way on both sides."""

from __future__ import annotations

import asyncio

import pytest
from rich.console import Console

from benchmarks.attribution.peers.metered import MeteredBackbone
from benchmarks.attribution.sparse_cost import OURS, PLAIN, make_case, measure, state
from benchmarks.attribution.trace.incidents import load_incidents
from benchmarks.harness.resultfile import ResultFile
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.loading import ModelSpecs

INCIDENTS = load_incidents()
INCIDENT = INCIDENTS[0]


@pytest.fixture
def world(tmp_path):
    fake = FakeGenerator(
        marker=INCIDENT.harm, poisoned=f"It is {INCIDENT.harm}.", clean="Ask the office."
    )  # fmt: skip
    backbone = MeteredBackbone(tmp_path / "answers.sqlite", lambda: fake, fake.model_id)
    executor = LocalExecutor(ModelSpecs(backbone="fake", nli="fake", embedder="fake"), generator=backbone)
    yield executor, backbone
    executor.close()
    asyncio.run(backbone.close())


def test_all_memories_are_retrieved_and_one_is_poison(world):
    case = make_case(world[0], INCIDENT, INCIDENTS, 20)
    assert len(set(case.ids)) == len(case.memory.entries) == 20
    assert len(case.poison & set(case.ids)) == 1


def test_others_memories_come_from_other_fields(world):
    case = make_case(world[0], INCIDENT, INCIDENTS, 20)
    own = {memory for other in INCIDENTS if other.field == INCIDENT.field for memory in other.benign}
    shown = {(entry.request, entry.response) for entry in case.memory.entries}
    assert shown & own == set(INCIDENT.benign)


def test_both_sides_name_the_poison_and_plain_leave_one_out_asks_once_for_each_memory(world):
    executor, backbone = world
    case = make_case(executor, INCIDENT, INCIDENTS, 10)
    plain, ours = measure(executor, backbone, case, Reporter(Console(quiet=True), quiet=True))
    assert (plain["side"], plain["calls"], plain["poison_named"], plain["named"]) == (PLAIN, 11, 1, 1)
    assert (ours["side"], ours["poison_named"], ours["named"], ours["equal"]) == (OURS, 1, 1, True)


def test_the_ratios_are_stated_once_for_each_k(tmp_path):
    results = ResultFile("sparse_cost", "test", {}, folder=tmp_path)
    for k, tokens in ((5, 100), (10, 50)):
        for side, cost in ((PLAIN, 1_000), (OURS, tokens)):
            results.add_row({
                "k": k, "event": "e", "side": side, "computed_tokens": cost, "seconds": cost / 10, "equal": True,
            })  # fmt: skip
    state(results, [5, 10])
    assert [(row["k"], row["tokens_ratio"], row["wall_ratio"]) for row in results.rows if "tokens_ratio" in row] == [
        (5, 10.0, 10.0), (10, 20.0, 20.0),
    ]  # fmt: skip
    state(results, [5, 10])
    assert sum("tokens_ratio" in row for row in results.rows) == 2
