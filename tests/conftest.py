"""For all tests: how property tests draw, which tests may load weights, which share a process, which tools were asked.

Property tests draw the same examples every time, and have no wall-clock deadline. A check of one tree then always says
the same. `make check` draws a quarter of them. To look for what they miss, draw others, and more of them:
`pytest -m hypothesis --hypothesis-profile=explore`.

Only a test marked `weights` may load packaged weights: for any other one there are none. Where tests run in several
processes (`-n 2`), those that start Ray or vLLM share one, those that load weights share one, so that
models are loaded once, and so do those of each file.

Folders of tests lie in memory where there is room: stores are synced so often that waiting for a disk would be half of
all the time. `--basetemp` names another place.

A test marked `tool(NAME)` is skipped where that tool is absent. MEMAUDIT_TESTED_TOOLS names tools, by spaces, of which
at least one test must have passed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from xdist.scheduler import LoadScopeScheduling

from memory_audit.models.weights import coder, packaged
from memory_audit.models.weights.cache import CACHE_VARIABLE, Progress

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdist.remote import Producer

# Explaining a failure takes a minute under Python 3.11's tracing, which a test's time limit would end.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)

settings.register_profile("memaudit", deadline=None, derandomize=True, phases=PHASES)
settings.register_profile("check", deadline=None, derandomize=True, max_examples=25, phases=PHASES)
settings.register_profile("explore", deadline=None, max_examples=1_000, phases=PHASES)
settings.load_profile("memaudit")

TESTED_TOOLS_VARIABLE = "MEMAUDIT_TESTED_TOOLS"
EMPTY_CACHE = tempfile.TemporaryDirectory(prefix="memaudit-tests-")
"""Of tests that load no weights: they neither find what a user has assembled, nor leave anything there."""

TOGETHER = {"processes": {"ray", "vllm"}, "weights": {"weights"}}
"""Markers of files whose tests share one process, by its group."""

PASSED_TOOLS: set[str] = set()

IN_MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 << 30  # noqa: S108 - pytest makes a folder there that is this user's alone
if os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def _refuse(_progress: Progress) -> None:
    pytest.fail("this test loads packaged weights: mark it `weights`, or use a fake model")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Take the packaged weights away from tests that are not marked, and a user's own from all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coder, "_hub_copy", lambda _: None)
        for known in coder.CODERS.values():
            patch.delenv(known.variable, raising=False)
        if item.get_closest_marker("weights") is None:
            patch.setenv(CACHE_VARIABLE, EMPTY_CACHE.name)
            for name, (folder, _) in packaged.PACKAGED.items():
                patch.setitem(packaged.PACKAGED, name, (folder, _refuse))
        return (yield)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Say which tools a test asks; reports carry it to the main process."""
    item.user_properties += [("tool", mark.args[0]) for mark in item.iter_markers("tool")]


@pytest.hookimpl(optionalhook=True)  # of xdist, which may be switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Share tests out by files and groups of files."""

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return process_of(config.rootpath / nodeid.partition("::")[0])

    return Groups(config, log)


@cache
def process_of(path: Path) -> str:
    """Name the group of a file by the marks that it gives; the main process collects no tests that it could ask."""
    marks = set(re.findall(r"\bpytest\.mark\.(\w+)", path.read_text(encoding="utf-8")))
    return next((group for group, of in TOGETHER.items() if marks & of), str(path))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember the tools of tests that passed; in the main process also those of others."""
    if report.when == "call" and report.passed:
        PASSED_TOOLS.update(str(value) for name, value in report.user_properties if name == "tool")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where a tool that must be asked was not, and where weights were assembled for a test that is not marked."""
    assembled = Path(EMPTY_CACHE.name, "models").is_dir()
    EMPTY_CACHE.cleanup()
    untested = sorted(set(os.environ.get(TESTED_TOOLS_VARIABLE, "").split()) - PASSED_TOOLS)
    if not hasattr(session.config, "workerinput") and untested:  # the main process hears of all tests
        print(f"\n{TESTED_TOOLS_VARIABLE}: no test passed that asks {', '.join(untested)}")  # noqa: T201
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if assembled:
        print("\npackaged weights were assembled for a test that is not marked `weights`")  # noqa: T201
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
