"""Whole graphs by Ray Data: equal bytes, and what a killed driver and a lost node cost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from memory_audit.errors import ModelError, UsageError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.executors.on_ray import RayExecutor
from memory_audit.jobs.run.groups import plan, run
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.services.actors import EntailmentActor
from memory_audit.provenance.keys import save_policy
from tests.audit_world import CONFIG, FAKES, NOW_MS, harmful_events, json_of, keyring, make_snapshot, request_of
from tests.ray.losing_graphs import EVENTS, entries
from tests.ray.test_lost_node import end_session
from tests.whole import whole

pytest.importorskip("pandas")
pytestmark = pytest.mark.ray

FULL = replace(CONFIG, graph="full")


def audited(executor, snapshot, out, events=None):
    """Audit as a command does, with the time it took held fixed; the executor is closed afterwards."""
    try:
        request = request_of(snapshot, events or harmful_events(), FULL)
        result, failed = audit_all(request, executor, out, now_ms=NOW_MS)
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


@pytest.mark.usefixtures("local_ray", "by_ray_data")
def test_a_model_that_fails_in_the_pipeline_stops_the_run_with_its_own_line(snapshot, tmp_path, monkeypatch):
    class Failing(EntailmentActor):
        async def rows(self, items, model_id):
            raise ModelError("the card is full")

    monkeypatch.setattr("memory_audit.jobs.executors.on_ray.EntailmentActor", Failing)
    with pytest.raises(ModelError, match=r"^the card is full; finished replays are kept: start .* again to continue$"):
        audited(RayExecutor(FAKES), snapshot, tmp_path / "run")


@pytest.mark.usefixtures("local_ray", "by_ray_data")
def test_without_ray_data_the_extra_is_named(snapshot, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(UsageError, match=r"ray\.data .*pip install .*\[audit\]"):
        audited(RayExecutor(FAKES), snapshot, tmp_path / "run")


@pytest.mark.timeout(240)
def test_a_lost_node_and_a_killed_driver_change_no_byte_and_ask_little_twice(tmp_path):
    snapshot = make_snapshot(tmp_path / "memory", entries())
    save_policy(keyring().policy, tmp_path / "policy.json")
    expected = audited(LocalExecutor(FAKES, FakeGenerator()), snapshot, tmp_path / "local", EVENTS)
    # Not pytest's folder, whose name is too long for Ray's sockets; and not /tmp/ray, which `ray.init()` looks into.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as scratch:
        path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.ray.losing_graphs", str(tmp_path)], stdout=subprocess.PIPE,
            env=os.environ | {"RAY_TMPDIR": scratch, "PYTHONPATH": path}, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            printed, _ = program.communicate(timeout=200)
        finally:
            end_session(program.pid)
    assert program.returncode == 0, printed[-2_000:]
    for run_name in ("node", "driver"):
        assert (tmp_path / f"{run_name}.json").read_text() == expected
        asked = (tmp_path / f"{run_name}.asked").read_text().splitlines()
        assert 6_000 < len(asked) <= 1.05 * len(set(asked))
