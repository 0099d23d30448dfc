"""Commands as a user runs them: in a folder of their own, without this machine's keys, trust or cluster."""

from __future__ import annotations

import shutil
import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest
import typer.main

from memory_audit.jobs.cli.main import main
from memory_audit.jobs.cli.shared import Invocation
from memory_audit.jobs.run.run_audit import start_models

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_audit.jobs.executors.executor import Executor

SETTINGS = (
    "MEMAUDIT_KEYS", "MEMAUDIT_TRUST", "MEMAUDIT_GUARD_TOKEN", "MEMAUDIT_BACKBONE_KEY_ENV", "RAY_ADDRESS",
    "MEMAUDIT_PASSPHRASE", "MEMAUDIT_PASSPHRASE_FILE", "MEMAUDIT_NEW_PASSPHRASE",
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def tree_of_commands():
    """Make the tree of all commands once, and not at each call: that is most of the time of a short one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


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


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """Folders as commands left them, by these commands and the files that were there before."""
    return tmp_path_factory.mktemp("templates"), {}


@pytest.fixture
def set_up(folder, run, templates):
    """Run commands that must end well; for a later test with the same files, copy what they left."""
    place, made = templates

    def commands(*each: tuple[str, ...]) -> None:
        files = [path for path in folder.rglob("*") if path.is_file()]
        begun = each, frozenset((path.relative_to(folder), path.read_bytes()) for path in files)
        if begun in made:
            shutil.copytree(made[begun], folder, symlinks=True, dirs_exist_ok=True)
            return
        for words in each:
            assert run(*words)[0] == 0
        made[begun] = shutil.copytree(folder, place / str(len(made)), symlinks=True)

    return commands
