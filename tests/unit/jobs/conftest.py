"""Commands as a user runs them: in a folder of their own, without this machine's keys, trust or cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from memory_audit.jobs.cli.main import main
from memory_audit.jobs.cli.store import Invocation
from memory_audit.jobs.run.run_audit import start_models

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_audit.jobs.executors.executor import Executor

SETTINGS = (
    "MEMAUDIT_KEYS", "MEMAUDIT_TRUST", "MEMAUDIT_GUARD_TOKEN", "MEMAUDIT_BACKBONE_KEY_ENV", "RAY_ADDRESS",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys):
    """Run one command; returns exit code, standard output and standard error. `start` starts its models."""

    def command(*words: str, start: Callable[..., Executor] = start_models) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["memaudit", *words])
        with pytest.raises(SystemExit) as stopped:
            main(Invocation(start=start))
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return command
