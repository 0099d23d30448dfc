"""Jobs submitted over HTTP to a cluster that runs on this machine."""

from __future__ import annotations

import datetime as dt
import sys
import time
from pathlib import Path

import pytest

from audit.errors import UsageError
from jobs.cluster import JobState, logs, status, submission_id_of, submit

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 100.0


def wait(address: str, submission_id: str) -> JobState:
    deadline = time.monotonic() + PATIENCE_S
    while not (state := status(address, submission_id)).finished:
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    return state


@pytest.fixture(scope="module")
def helped(local_ray):
    """A submitted `memaudit --help`, and everything that following its log gave."""
    name = submission_id_of("help desk", dt.date(2026, 1, 2))
    accepted = submit(
        local_ray, [sys.executable, "-m", "jobs.cli", "--help"], submission_id=name,
        env_vars={"PYTHONPATH": str(REPOSITORY), "MEMAUDIT_TEST_KEY_FILE": "/run/keys/auditor.key"},
    )  # fmt: skip
    return name, accepted, "".join(logs(local_ray, name, follow=True))


def test_a_submitted_command_runs_and_its_log_can_be_followed_to_the_end(local_ray, helped):
    name, accepted, followed = helped
    assert accepted == name == "memaudit-help-desk-2026-01-02"
    state = wait(local_ray, name)
    assert (state.state, state.exit_code) == ("SUCCEEDED", 0)
    for command in ("audit", "verify", "purge"):
        assert command in followed
    assert "".join(logs(local_ray, name)) == followed


def test_the_same_night_submitted_twice_runs_once(local_ray, helped):
    with pytest.raises(UsageError, match=r"job memaudit-help-desk-2026-01-02 was submitted to http.* already"):
        submit(local_ray, ["true"], submission_id=helped[0])


def test_a_failing_command_is_failed_with_its_exit_code_and_its_folder_is_uploaded_without_keys(local_ray, tmp_path):
    (tmp_path / "nested").mkdir()
    for name in ("events.jsonl", "auditor.key", "nested/log.key"):
        (tmp_path / name).write_text("content")
    command = ["bash", "-c", "find . -type f -printf 'uploaded:%P\\n'; exit 2"]
    submit(local_ray, command, submission_id="memaudit-failing", working_dir=tmp_path)
    state = wait(local_ray, "memaudit-failing")
    assert (state.state, state.exit_code) == ("FAILED", 2)
    assert "\n" not in state.message
    printed = "".join(logs(local_ray, "memaudit-failing")).splitlines()  # Ray's own lines are among them
    assert [line for line in printed if line.startswith("uploaded:")] == ["uploaded:events.jsonl"]


def test_unknown_jobs_and_absent_clusters_are_told_in_one_line(local_ray):
    with pytest.raises(UsageError, match=r"no job 'memaudit-none' on http"):
        status(local_ray, "memaudit-none")
    for follow in (False, True):
        with pytest.raises(UsageError, match=r"no job 'memaudit-none' on http"):
            list(logs(local_ray, "memaudit-none", follow=follow))
    with pytest.raises(UsageError, match=r"no Ray cluster answers at http://127.0.0.1:9 ") as failure:
        status("http://127.0.0.1:9", "memaudit-none")
    assert "\n" not in str(failure.value)
