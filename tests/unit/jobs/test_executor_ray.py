"""What the driver makes of a task that failed. No Ray is started: its errors are made here."""

from __future__ import annotations

import traceback
from types import SimpleNamespace

import pytest
import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError, WorkerCrashedError

from audit.attribution.ablation import leave_out
from audit.errors import ModelError, UsageError
from jobs.executor_ray import RayExecutor
from jobs.replay_group import Program, ReplayGroup, ReplayQuestion
from models.ray_actors import ActorPool
from tests.audit_world import CONFIG, FAKES

IN_THE_TASK = "Traceback (most recent call last):\n  File \"my_agent.py\", line 7, in episode\nKeyError: 'city'\n"


def failed(cause: Exception) -> RayTaskError:
    """Return what `ray.get` raises for a task that raised `cause`."""
    error = RayTaskError("_replay_task", IN_THE_TASK, cause, "ray::_replay_task", 1, "127.0.0.1")
    raised: RayTaskError = error.as_instanceof_cause()
    return raised


@pytest.fixture
def replay_fails(monkeypatch):
    """Run one replay, whose task fails with the error given."""

    def replay(error: RayError) -> None:
        def fail(_stream: object) -> None:
            raise error

        task = SimpleNamespace(remote=lambda *_: iter([object()]))
        monkeypatch.setattr("jobs.executor_ray._replay_task", SimpleNamespace(options=lambda **_: task))
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray, "wait", lambda streams, **_: (streams, []))
        monkeypatch.setattr(ray, "get", fail)
        executor = RayExecutor(FAKES)
        executor._pools["backbone"] = ActorPool(model_id="m", handles=())
        question = ReplayQuestion(ablation=leave_out("e", "removal", "text", frozenset()), memories=())
        groups = [ReplayGroup(event_id="e", query="q", questions=(question,))]
        list(executor.replay(groups, Program.of(CONFIG.agent, CONFIG.harm, 0)))

    return replay


def test_a_defect_in_the_users_agent_stays_one_and_shows_where_it_is(replay_fails):
    with pytest.raises(KeyError) as raised:
        replay_fails(failed(KeyError("city")))
    assert (type(raised.value), str(raised.value)) == (KeyError, "'city'")
    assert 'File "my_agent.py", line 7, in episode' in "".join(traceback.format_exception(raised.value))


def test_an_error_of_ours_comes_back_as_it_was_raised(replay_fails):
    with pytest.raises(UsageError, match=r"^harm scorer 'mine' failed$") as raised:
        replay_fails(failed(UsageError("harm scorer 'mine' failed")))
    assert type(raised.value) is UsageError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (WorkerCrashedError(), "^the Ray cluster failed: The worker died unexpectedly"),
        (OutOfMemoryError("fifty lines"), "^the Ray cluster failed: a machine ran out of memory$"),
        (failed(WorkerCrashedError()), "^a replay task failed: "),
    ],
)
def test_what_was_lost_can_be_resumed(replay_fails, error: RayError, told: str):
    with pytest.raises(ModelError, match=told):
        replay_fails(error)
