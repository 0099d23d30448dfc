"""Whole graphs by Ray Data: equal bytes, and what a killed driver and a lost node cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory_audit.errors import ModelError, UsageError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.executors.on_ray import RayExecutor
from memory_audit.jobs.run.groups import plan, run
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.models.fakes import FakeGenerator
from tests.audit_world import CONFIG, FAKES, NOW_MS, harmful_events, json_of, request_of
from tests.whole import whole

pytest.importorskip("pandas")
pytestmark = pytest.mark.ray

FULL = replace(CONFIG, graph="full")


def audited(executor, snapshot, out, config=FULL):
    """Audit as a command does, with the time it took held fixed; the executor is closed afterwards."""
    try:
        result, failed = audit_all(request_of(snapshot, harmful_events(), config), executor, out, now_ms=NOW_MS)
        assert failed == {}
        return json_of(whole(out, replace(result, seconds=0.0)))
    finally:
        executor.close()


@pytest.fixture
def by_ray_data(monkeypatch):
    monkeypatch.setattr(run, "FEWEST_ENTRIES", 1)


@pytest.mark.usefixtures("local_ray", "by_ray_data")
@pytest.mark.parametrize("joined", [1, 48])
def test_an_audit_with_whole_graphs_gives_the_bytes_of_a_local_one(snapshot, tmp_path, monkeypatch, joined):
    monkeypatch.setattr(plan, "EVENTS", joined)
    on_ray = audited(RayExecutor(FAKES), snapshot, tmp_path / "ray")
    assert on_ray == audited(LocalExecutor(FAKES, FakeGenerator()), snapshot, tmp_path / "local")
    assert len(list((tmp_path / "ray" / "graph").iterdir())) == 2
    assert not list((tmp_path / "ray").glob("groups/*/entailment/*"))  # groups asked nothing about pairs
    assert list((tmp_path / "local").glob("groups/*/entailment/*"))
