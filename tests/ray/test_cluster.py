"""Jobs submitted over HTTP to a cluster that runs on this machine."""

from __future__ import annotations

import datetime as dt
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from memory_audit.errors import UsageError
from memory_audit.jobs.cli.main import app
from memory_audit.jobs.cluster import logs, status, submission_id_of, submit
from memory_audit.provenance.keys import POLICY_FILE, key_file, save_keyring
from memory_audit.report.json import from_json
from memory_audit.snapshot.publishing.publish import create_store
from tests.audit_world import CONFIG, PLANTED, entries_of, harmful_events, keyring, removed

if TYPE_CHECKING:
    from ray.job_submission import JobDetails

pytestmark = pytest.mark.ray

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 100.0
BEFORE_TODAY_MS = int(time.time() * 1000) - 86_400_000


def wait(address: str, submission_id: str) -> JobDetails:
    deadline = time.monotonic() + PATIENCE_S
    while not (state := status(address, submission_id)).status.is_terminal():
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    return state


@pytest.fixture(scope="module")
def helped(local_ray):
    """A submitted `memaudit --help`, and everything that following its log gave."""
    name = submission_id_of("help-desk", dt.date(2026, 1, 2))
    accepted = submit(
        local_ray,
        ["env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", "memory_audit.jobs.cli.main", "--help"],
        submission_id=name,
    )
    return name, accepted, "".join(logs(local_ray, name, follow=True))


def test_a_submitted_command_runs_and_its_log_can_be_followed_to_the_end(local_ray, helped):
    name, accepted, followed = helped
    assert accepted == name == "memaudit-help-desk-2026-01-02"
    state = wait(local_ray, name)
    assert (state.status.value, state.driver_exit_code) == ("SUCCEEDED", 0)
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
    assert (state.status.value, state.driver_exit_code) == ("FAILED", 2)
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


def test_a_whole_audit_is_submitted_followed_found_in_its_run_folder_and_purged(local_ray, tmp_path):
    store, run = tmp_path / "store", tmp_path / "run"
    entries = [item for tenant in PLANTED for item in entries_of(tenant)]
    create_store(store, entries, keyring(), now_ms=BEFORE_TODAY_MS)
    save_keyring(keyring(), tmp_path / "keys")
    sealing = tmp_path / "sealing"  # all the keys that the cluster is given
    sealing.mkdir()
    for name in (POLICY_FILE, key_file(keyring().keys["auditor"][0])):
        shutil.copy(tmp_path / "keys" / name, sealing)
    (tmp_path / "events.jsonl").write_text("".join(f"{event.to_json()}\n" for event in harmful_events()))
    (tmp_path / "memaudit.yaml").write_text(yaml.safe_dump(CONFIG.canonical()))
    ran = CliRunner().invoke(app, [
        "submit", "--address", local_ray, "--name", "whole", "audit", str(store),
        "--events", str(tmp_path / "events.jsonl"), "--out", str(run), "--config", str(tmp_path / "memaudit.yaml"),
        "--keys", str(sealing), "--pin", str(tmp_path / "pin.json"),
    ], catch_exceptions=False)  # fmt: skip
    name = ran.stdout.strip()
    assert name == submission_id_of("whole", dt.datetime.now(tz=dt.UTC).date())
    state = wait(local_ray, name)
    printed = CliRunner().invoke(app, ["logs", name, "--address", local_ray], catch_exceptions=False).stdout
    assert (state.status.value, state.driver_exit_code) == ("SUCCEEDED", 0), printed
    told = CliRunner().invoke(app, ["status", name, "--address", local_ray], catch_exceptions=False).stdout
    assert told.startswith("SUCCEEDED")
    assert removed(from_json((run / "result.json").read_bytes())) == PLANTED
    assert (run / "report.html").is_file()
    purged = CliRunner().invoke(app, [
        "purge", str(run), str(store), "--keys", str(tmp_path / "keys"), "--pin", str(tmp_path / "pin.json"), "--apply",
    ], catch_exceptions=False)  # fmt: skip
    assert purged.stdout.count("removed ") == sum(map(len, PLANTED.values()))
