"""The audit on a real Ray with the fakes: equal bytes, and what happens when processes die."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import ray

from memory_audit.errors import ModelError, UsageError, VerificationError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.executors.on_ray import RayExecutor, _task
from memory_audit.jobs.run.groups import plan
from memory_audit.models.fakes import FakeGenerator
from memory_audit.models.services.actors import EmbedderActor
from memory_audit.models.services.places import GpuShares
from memory_audit.snapshot.layout import bucket_of
from tests.audit_world import FAKES, PLANTED, json_of, make_snapshot, removed, run_groups, run_local, run_with
from tests.unit.models.kept_here import Here
from tests.unit.models.stand_in_engine import StandInActor, engine_of

if TYPE_CHECKING:
    from memory_audit.models.services.places import Role

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def reference(snapshot, tmp_path_factory):
    return json_of(run_local(snapshot, tmp_path_factory.mktemp("local") / "run"))


def handles(executor: RayExecutor, role: Role = "backbone") -> list[Any]:
    """The replicas of a model."""
    return list(executor._keeper._kept[role].replicas.values())


@pytest.fixture
def by_bucket_alone(monkeypatch):
    """Groups of one bucket each."""
    monkeypatch.setattr(plan, "EVENTS", 1)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("joined", [1, 48])
def test_a_local_run_and_a_ray_run_give_equal_bytes(snapshot, tmp_path, reference, monkeypatch, joined):
    monkeypatch.setattr(plan, "EVENTS", joined)
    result, failed = run_groups(RayExecutor(FAKES), snapshot, tmp_path / "run")
    assert (removed(result), failed) == (PLANTED, {})
    assert json_of(result) == reference
    assert len(list((tmp_path / "run" / "groups").iterdir())) == (2 if joined == 1 else 1)


@pytest.mark.usefixtures("by_bucket_alone")
def test_a_bucket_that_cannot_be_read_is_its_tenants_alone(local_ray, tmp_path, reference):
    snapshot = make_snapshot(tmp_path / "memory")
    shutil.rmtree(tmp_path / "memory" / "data" / f"b={bucket_of('acme'):02x}")
    result, failed = run_groups(RayExecutor(FAKES), snapshot, tmp_path / "run")
    assert [(tenant, type(error)) for tenant, error in failed.items()] == [("acme", VerificationError)]
    assert json.loads(json_of(result))["tenants"][1] == json.loads(reference)["tenants"][1]


def test_replicas_and_the_loss_of_one_change_no_byte(local_ray, snapshot, tmp_path, reference):
    class Halved(RayExecutor):
        rounds = 0

        def replay(self, groups, program):
            self.rounds += 1
            if self.rounds == 3:
                ray.kill(handles(self)[0])
            yield from super().replay(groups, program)

    result = run_with(Halved(FAKES, replicas=2), snapshot, tmp_path / "run")
    assert json_of(result) == reference


def test_a_run_goes_on_where_the_engine_of_one_replica_is_killed(local_ray, snapshot, tmp_path, reference, monkeypatch):
    """The other replica answers, and the one whose engine died comes back with another."""

    class Losing(RayExecutor):
        rounds = 0

        def replay(self, groups, program):
            self.rounds += 1
            if self.rounds == 3:
                lost = [ray.get(handle.__ray_call__.remote(engine_of)) for handle in handles(self)]
                os.kill(lost[0], signal.SIGKILL)
            yield from super().replay(groups, program)

    monkeypatch.setattr("memory_audit.jobs.executors.on_ray.GeneratorActor", StandInActor)
    executor = Losing(FAKES, replicas=2)
    assert json_of(run_with(executor, snapshot, tmp_path / "run")) == reference
    assert executor.rounds > 3


def test_a_cluster_that_does_not_answer_is_said_at_once():
    """In a process of its own, as here a Ray is running; Ray itself tries for minutes."""
    code = (
        "from memory_audit.errors import UsageError\n"
        "from memory_audit.jobs.executors.on_ray import RayExecutor\n"
        "from tests.audit_world import FAKES\n"
        "for address in ('127.0.0.1:1', 'ray://127.0.0.1:1', '127.0.0.1:99999', 'nowhere'):\n"
        "    try: RayExecutor(FAKES, address=address)\n"
        "    except UsageError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    lines = said.splitlines()
    assert len(lines) == 4
    assert "no Ray cluster at '127.0.0.1:1': nothing answers there (" in lines[0]


def test_a_driver_that_started_ray_ends_as_it_would_have_without():
    code = (
        "import os, signal\n"
        "from memory_audit.jobs.executors.on_ray import RayExecutor\n"
        "from tests.audit_world import FAKES\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "executor = RayExecutor(FAKES)\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "finally:\n"
        "    executor.close()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "interrupted")
    assert "SIGTERM received" not in ended.stderr


def test_closing_ends_the_actors_and_leaves_a_ray_that_others_started(local_ray, snapshot, tmp_path):
    executor = RayExecutor(FAKES)
    assert executor.embedder.embed(["a"]).shape == (1, 64)
    (handle,) = handles(executor, "embedder")
    executor.close()
    executor.close()
    assert ray.is_initialized()
    with pytest.raises(ray.exceptions.RayActorError):  # noqa: PT012 - asked until it is gone
        for _ in range(100):  # Ray kills in the background: the actor may answer a little longer
            ray.get(handle.model_id.remote())
            time.sleep(0.1)


def test_the_only_gpu_is_shared_by_all_models(local_ray, monkeypatch):
    shares = GpuShares.of(1, local_backbone=True)
    monkeypatch.setattr(GpuShares, "of", staticmethod(lambda gpus, local_backbone: shares))  # a fake needs none itself
    executor = RayExecutor(FAKES)
    try:
        assert executor.embedder.embed(["a"]).shape == (1, 64)
        assert executor.entailment.probabilities([("a", "b")]).shape == (1, 3)
        assert executor.backbone.model_id  # waited for ever when the others held parts that left no whole GPU
    finally:
        executor.close()


def test_a_model_that_finds_no_place_is_given_up_and_not_waited_for_for_ever(local_ray, monkeypatch):
    monkeypatch.setattr("memory_audit.models.services.keeper.START_S", 1.0)
    other = ray.remote(num_gpus=1)(Other).remote()
    assert ray.get(other.is_there.remote())
    with pytest.raises(ModelError, match=r"no replica of fake started within .* GPUs are free; make room for"):
        Here(EmbedderActor, FAKES, gpus=1.0)
    ray.kill(other)


class Other:
    """What another user of the cluster runs."""

    def is_there(self) -> bool:
        return True


class Killing(RayExecutor):
    """An executor whose backbone's process is killed after some outcomes."""

    def __init__(self, outcomes: int) -> None:
        super().__init__(FAKES)
        self._left = outcomes

    def replay(self, groups, program):
        for outcome in super().replay(groups, program):
            yield outcome
            self._left -= 1
            if self._left == 0:
                for handle in handles(self):
                    ray.kill(handle)


def test_a_backbone_killed_during_the_run_stops_it_and_a_second_start_ends_with_the_same_bytes(
    local_ray, snapshot, tmp_path, reference
):
    with pytest.raises(ModelError, match=r"died .* start the same command again") as failure:
        run_with(Killing(8), snapshot, tmp_path / "run")
    assert "\n" not in str(failure.value)
    assert list((tmp_path / "run" / "replays").glob("*.parquet"))
    assert json_of(run_with(RayExecutor(FAKES), snapshot, tmp_path / "run")) == reference


def test_what_ray_left_unfinished_a_run_without_ray_can_end(local_ray, snapshot, tmp_path, reference):
    with pytest.raises(ModelError):
        run_with(Killing(8), snapshot, tmp_path / "run")
    generator, whole = FakeGenerator(), FakeGenerator()
    again = run_with(LocalExecutor(FAKES, generator), snapshot, tmp_path / "run")
    assert json_of(again) == reference == json_of(run_local(snapshot, tmp_path / "whole", generator=whole))
    assert generator.requests <= whole.requests - 8


def test_a_model_that_names_nothing_is_the_users_error_also_under_ray(local_ray, snapshot, tmp_path):
    specs = type(FAKES)(backbone="fake", nli="fake", embedder="./no-such-folder")
    with pytest.raises(UsageError, match="no such model folder"):
        run_with(RayExecutor(specs), snapshot, tmp_path / "run")


def worker_processes(title: str) -> list[psutil.Process]:
    """Ray's worker processes of this test's own cluster that run the named task."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.cmdline() and title in process.cmdline()[0]:
                found.append(process)
    return found


class KillingTasks(RayExecutor):
    """An executor whose tasks' worker processes are killed while they work, a number of times."""

    def __init__(self, kills: int) -> None:
        super().__init__(FAKES)
        self._kills = kills
        self.killed = 0

    def each(self, works):
        stop = threading.Event()

        def hunt() -> None:
            while not stop.is_set() and self.killed < self._kills:
                for process in worker_processes("ray::_task")[:1]:
                    with contextlib.suppress(psutil.Error):
                        os.kill(process.pid, signal.SIGKILL)
                        self.killed += 1
                time.sleep(0.005)

        hunter = threading.Thread(target=hunt)
        hunter.start()
        try:
            yield from super().each(works)
        finally:
            stop.set()
            hunter.join()


@pytest.mark.usefixtures("by_bucket_alone")
def test_workers_killed_during_the_audit_are_repeated_and_the_result_is_the_same(
    local_ray, snapshot, tmp_path, reference
):
    executor = KillingTasks(kills=2)
    result, failed = run_groups(executor, snapshot, tmp_path / "run")
    assert executor.killed
    assert (json_of(result), failed) == (reference, {})


def test_a_run_that_no_node_is_left_for_stops_and_does_not_hang(local_ray, snapshot, tmp_path, monkeypatch):
    nowhere = SimpleNamespace(options=lambda **options: _task.options(**options, resources={"no such": 1}))
    monkeypatch.setattr("memory_audit.jobs.executors.on_ray._task", nowhere)
    monkeypatch.setattr("memory_audit.jobs.executors.on_ray.LOOK_S", 0.1)
    monkeypatch.setattr("memory_audit.jobs.executors.on_ray.PATIENCE_S", 0.25)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"memory": 1e9})
    with pytest.raises(ModelError, match=r"^no node is left in the cluster that can run replays; finished replays are"):
        run_groups(RayExecutor(FAKES), snapshot, tmp_path / "run")
