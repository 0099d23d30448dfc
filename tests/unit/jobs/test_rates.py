"""Rates of models: what was done at the same time takes its time once, and loading takes none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.config import AuditConfig
from memory_audit.errors import ModelError
from memory_audit.jobs.executors import rates
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.executors.measured import MeasuredExecutor, WorkDone
from memory_audit.jobs.executors.rates import keep_rates, rates_of
from memory_audit.models import lazy
from memory_audit.models.fakes import FakeEmbedder
from tests.audit_world import FAKES

CONFIG = AuditConfig(backbone="fake", nli="fake", embedder="fake")


def nli(units, *spans):  # noqa: ANN002
    return {"nli": WorkDone(units=units, spans=list(spans))}


def test_what_is_done_at_the_same_time_takes_its_time_once(folder):
    keep_rates(CONFIG, "node-3", [nli(30, (100.0, 110.0)), nli(10, (105.0, 115.0), (120.0, 125.0)), {}])
    assert rates_of(CONFIG, "node-3") == {"backbone": None, "embedder": None, "nli": 40 / 20}
    assert rates_of(CONFIG, "node-4")["nli"] is None


def test_the_last_audit_counts_most(folder):
    keep_rates(CONFIG, "node-3", [nli(10, (0.0, 10.0))])
    keep_rates(CONFIG, "node-3", [nli(30, (20.0, 30.0))])
    assert rates_of(CONFIG, "node-3")["nli"] == pytest.approx((5 + 30) / (5 + 10))


def test_a_moment_of_work_is_no_rate(folder):
    keep_rates(CONFIG, "node-3", [nli(1, (0.0, 0.1))])
    assert rates_of(CONFIG, "node-3")["nli"] is None
    assert not (folder / "state" / "memaudit" / "rates.json").exists()


def test_where_nothing_can_be_written_there_is_no_rate_and_no_error(folder):
    (folder / "state").write_text("no folder")
    keep_rates(CONFIG, "node-3", [nli(30, (0.0, 10.0))])
    assert rates_of(CONFIG, "node-3")["nli"] is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted).map(tuple), max_size=12))
def test_covered_time_is_the_length_of_the_union(spans):
    union = {second for begin, end in spans for second in range(begin, end)}
    assert rates._covered((float(begin), float(end)) for begin, end in spans) == len(union)


def test_loading_takes_no_time_of_the_work(monkeypatch):
    clock = [100.0]

    def load(_specs):
        clock[0] += 60.0
        return FakeEmbedder()

    monkeypatch.setattr(lazy, "load_embedder", load)
    monkeypatch.setattr("memory_audit.jobs.executors.measured.time.time", lambda: clock[0])
    measured = MeasuredExecutor(LocalExecutor(FAKES))
    assert measured.embedder.embed(["a", "b"]).shape[0] == 2
    assert measured.embedder.embed(["c"]).shape[0] == 1
    assert measured.done == {"embedder": WorkDone(units=3, spans=[(160.0, 160.0)] * 2)}


def test_work_that_failed_is_not_counted():
    work = WorkDone()
    with pytest.raises(ModelError), work.at_work(5):
        raise ModelError("it died")
    assert work == WorkDone()
