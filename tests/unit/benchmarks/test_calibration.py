"""Which incidents are calibrated on, what is counted of a store with poison, and what the bars say."""

import dataclasses
import json

import pytest
from rich.console import Console

from benchmarks.attribution.calibration import clean_incidents, halves, poison_found, state
from benchmarks.attribution.minja.study import TENANT, Cell, SharedScores, Study
from benchmarks.harness.resultfile import ResultFile
from memory_audit.calibration_file import CalibrationFile, Incident, Setting
from memory_audit.config import AuditConfig
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.models.fakes import FakeGenerator
from tests.audit_world import FAKES
from tests.unit.attribution.world import make_entry

QUERIES = ("question 1", "question 2")


@pytest.fixture
def study():
    executor = LocalExecutor(FAKES, FakeGenerator(poisoned="E", clean="A"))
    yield Study(SharedScores(executor), Reporter(Console(quiet=True), quiet=True))
    executor.close()


@pytest.fixture
def cell():
    entries = tuple(make_entry(n, "POISON" if n == 1 else "plain", tenant=TENANT) for n in range(8))
    return Cell(
        entries=entries, poison=frozenset({"m001"}), victims=QUERIES, held_out=(), benign=(),
        correct=lambda _, output: float(output == "A"),
        config=AuditConfig(
            k=3, harm={"kind": "regex", "pattern": "E$"}, probe_pattern=r"\b([AE])$", backbone="fake",
            nli="fake", embedder="fake",
        ),
    )  # fmt: skip


def test_what_is_wrong_with_memories_alone_is_an_incident(study, cell):
    row = clean_incidents(study, cell, dict.fromkeys(QUERIES, "A"))
    assert row["questions"] == 2
    assert row["incidents"]
    assert all(nats > 1.0 for nats in row["incidents"].values())
    assert not clean_incidents(study, cell, dict.fromkeys(QUERIES, "E"))["incidents"]  # wrong without memory, too


def test_poison_in_the_contexts_of_harmful_events_is_what_can_be_found(study, cell):
    setting = Setting(**clean_incidents(study, cell, dict.fromkeys(QUERIES, "A"))["setting"])
    model_id = FakeGenerator(poisoned="E", clean="A").model_id

    def known(nats: float) -> CalibrationFile:
        incidents = tuple(Incident(tenant=TENANT, event_id=str(n), nats=nats) for n in range(49))
        return CalibrationFile(
            backbone=model_id, setting=setting, judged_by="probe_pattern", events=49, incidents=incidents, made_ms=1
        )

    row = poison_found(study, cell, known(0.5))
    assert (row["poison"], row["fixed"], row["0.02"]) == (1, row["fixed"], row["fixed"])
    assert row["fixed"] == {"poison_removed": 1, "benign_removed": 0}
    calm = dataclasses.replace(cell, entries=tuple(make_entry(n, "plain", tenant=TENANT) for n in range(8)))
    assert poison_found(study, calm, known(0.5)) == {"events": 0, "poison": 0}


def test_the_bars_are_of_incidents_that_did_not_set_the_threshold(tmp_path):
    results = ResultFile("calibration", "c", {}, folder=tmp_path)
    state(results)
    assert [bar["met"] for bar in bars(tmp_path)] == [None] * 4
    for store in range(100):  # one held-out incident of 50 is beyond all of those calibrated on
        nats = 9.0 if store == 1 else 1.5
        results.add_row({"part": "clean", "store": store, "questions": 1, "incidents": {f"q{store}": nats}})
    known, held_out = halves(results.rows)
    assert (len(known), len(held_out)) == (50, 50)
    assert not known.keys() & held_out.keys()
    counts = {"fixed": 20, "0.02": 19, "0.05": 10}
    results.add_row({
        "part": "poison", "rho": 0.2, "seed": 0, "calibrated_on": 50, "events": 3, "poison": 20,
        **{name: {"poison_removed": count, "benign_removed": 0} for name, count in counts.items()},
    })  # fmt: skip
    state(results)
    assert [(bar["value"], bar["met"]) for bar in bars(tmp_path)] == [(1, True), (5.0, True), (1, True), (50.0, False)]


def bars(folder):
    return json.loads((folder / "calibration.json").read_text())["bars"]
