"""What an audit does when nodes of its cluster are lost: it goes on where it can, and else stops and can be resumed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.models.fakes import FakeGenerator
from memory_audit.provenance.keys import save_policy
from tests.audit_world import FAKES, json_of, keyring, make_snapshot, run_groups, run_local
from tests.ray.losing_nodes import EVENTS, OUTCOMES, entries, outcomes_on_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.result import AuditResult
    from memory_audit.snapshot.reader import VerifiedSnapshot

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).parents[2]
DEADLINE_S = 260.0
"""Less than pytest has here, which would end the test without its cleaning up. It takes 150 s on two busy cores."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the program left behind."""

    folder: Path
    snapshot: VerifiedSnapshot
    exit_code: int
    printed: str


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("lost")
    snapshot = make_snapshot(folder / "memory", entries())
    save_policy(keyring().policy, folder / "policy.json")
    # Not pytest's folder, whose name is too long for Ray's sockets; and not /tmp/ray, which `ray.init()` looks into.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as scratch:
        path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
        with (folder / "printed").open("wb") as printed:
            program = subprocess.Popen(
                [sys.executable, "-m", "tests.ray.losing_nodes", str(folder)],
                cwd=REPOSITORY, env=os.environ | {"RAY_TMPDIR": scratch, "PYTHONPATH": path},
                stdout=printed, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):  # its exit code then says so
                    program.wait(DEADLINE_S)
            finally:
                end_session(program.pid)
                program.wait()
        told = (folder / "printed").read_text(errors="replace")
        yield Told(folder=folder, snapshot=snapshot, exit_code=program.returncode, printed=told)


def end_session(session: int) -> None:
    """End what the program started: losing a head leaves processes behind, and all are of the program's session."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            if os.getsid(process.pid) == session:
                os.kill(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def whole(told, tmp_path_factory) -> tuple[AuditResult, int]:
    """An audit in this process, and how many requests it took."""
    generator = FakeGenerator()
    result = run_local(told.snapshot, tmp_path_factory.mktemp("local") / "run", generator=generator, events=EVENTS)
    assert result.counters["replays"] == OUTCOMES
    return result, generator.requests


def check_equal(told: Told, whole: tuple[AuditResult, int], run: str) -> None:
    """Check that an audit ended with the same bytes, and that at most one request in twenty was made twice."""
    result, requests = whole
    assert not (told.folder / f"{run}.error").exists(), told.printed
    assert (told.folder / f"{run}.json").read_text() == json_of(result), told.printed
    assert set(outcomes_on_disk(told.folder / run)) == set(outcomes_on_disk(told.folder / "lost"))
    asked = (told.folder / f"{run}.asked").read_text().splitlines()
    assert requests <= len(asked) <= 1.05 * requests


@pytest.mark.parametrize("run", ["lost", "models", "grown", "driver"])
def test_what_loses_nodes_an_nli_model_or_its_driver_ends_with_the_same_bytes_and_asks_hardly_anything_twice(
    told, whole, run
):
    """`lost` loses the node of its tasks three times, `models` that of its models four times, `grown` gets another."""
    check_equal(told, whole, run)


def test_where_nothing_takes_the_place_of_a_lost_model_the_audit_stops_with_one_line_and_its_exit_code(told):
    stopped = json.loads((told.folder / "stopped.error").read_text())
    assert (stopped["kind"], stopped["exit_code"]) == ("ModelError", 3)
    assert "died (nothing took its place in time); finished replays are kept: start the same " in stopped["line"]
    assert "\n" not in stopped["line"]
    assert stopped["kept"]


def test_started_again_the_audit_continues_and_what_it_had_when_the_head_was_lost_is_kept(told, whole, monkeypatch):
    assert told.exit_code == 1, told.printed
    assert "Failed to connect to GCS" in told.printed
    assert not (told.folder / "stopped.json").exists()
    kept = outcomes_on_disk(told.folder / "stopped")
    assert len(kept) == len(set(kept)) > json.loads((told.folder / "stopped.error").read_text())["kept"]
    generator = FakeGenerator()
    monkeypatch.setattr("memory_audit.jobs.run.groups.plan.EVENTS", 1)
    result, failed = run_groups(LocalExecutor(FAKES, generator), told.snapshot, told.folder / "stopped", events=EVENTS)
    assert (json_of(result), failed) == (json_of(whole[0]), {})
    assert len(kept) + generator.requests == OUTCOMES
