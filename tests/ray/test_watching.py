"""A run on Ray is seen where it is watched: its tasks in the run folder, its figures with whoever asks Ray's agents."""

from __future__ import annotations

import time
import urllib.request

import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families

from memory_audit.jobs.executors.on_ray import RayExecutor
from memory_audit.jobs.run.groups import plan
from memory_audit.jobs.watching import run_metrics
from memory_audit.jobs.watching.progress import Reporter
from memory_audit.jobs.watching.run_metrics import RunMetrics
from memory_audit.jobs.watching.tally import Tally
from tests.audit_world import FAKES, run_groups

pytestmark = pytest.mark.ray

PATIENCE_S = 60.0


def shown_by_ray(name):
    """Wait until an agent shows a metric, and return its values by stage."""
    node = ray.nodes()[0]
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            found = {sample.labels.get("stage"): sample.value for sample in family.samples if sample.name == name}
            if found:
                return found, text
        time.sleep(1)
    raise AssertionError(f"{name} is not shown")


@pytest.mark.usefixtures("local_ray")
def test_the_stages_of_a_group_that_is_alone_are_shown_by_the_driver(snapshot, tmp_path, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.run.groups.run.EVERY_S", 0.02)
    heard = []
    with Reporter(None, heard=lambda stage: heard.append(stage.name)):
        run_groups(RayExecutor(FAKES), snapshot, tmp_path / "run")
    assert heard


@pytest.mark.usefixtures("local_ray")
def test_what_tasks_do_is_counted_here_and_shown_by_ray(snapshot, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "EVENTS", 1)
    monkeypatch.setattr(run_metrics, "EVERY_S", 0.5)
    file, tally = tmp_path / "run.prom", Tally()
    with RunMetrics(tally, "/the/store", file), Reporter(None, tally=tally):
        run_groups(RayExecutor(FAKES), snapshot, tmp_path / "run")
    assert tally.of("tenant").done == 2
    assert tally.of("replay").done > 0
    text = file.read_text()
    assert f'memaudit_run_done_total{{stage="replay",store="/the/store"}} {tally.of("replay").done:.1f}' in text
    found, shown = shown_by_ray("ray_memaudit_run_done_total")
    assert found["replay"] == tally.of("replay").done
    assert "POISON" not in shown
    assert not list((tmp_path / "run" / "at-work").iterdir())
