"""The vLLM plugin: children end with their parent, and nothing else about a process changes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from contextlib import nullcontext

import pytest

from memory_audit.models.backbone.vllm_plugin import (
    ENGINE_VARIABLE,
    FOLLOWER,
    RECHECK_MS,
    _wait_instead_of_spinning,
    marked_as_ours,
    register,
)


def _grandchild(pipe) -> None:
    register()
    pipe.send(os.getpid())
    time.sleep(60)


def _followers_in_a_child(pipe) -> None:
    register()
    pipe.send(FOLLOWER in {thread.name for thread in threading.enumerate()})


def _child(pipe) -> None:
    context = multiprocessing.get_context("spawn")
    with marked_as_ours():
        context.Process(target=_grandchild, args=(pipe,), daemon=False).start()
    time.sleep(60)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:  # noqa: PTH123 - a kernel file
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_whose_parent_is_killed_ends_by_itself():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs,))
    child.start()
    assert ours.poll(30), "the grandchild never started"
    grandchild = ours.recv()
    assert _alive(grandchild)
    os.kill(child.pid, signal.SIGKILL)
    child.join(10)
    deadline = time.monotonic() + 10
    while _alive(grandchild) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(grandchild)


@pytest.mark.parametrize("ours", [True, False])
def test_only_engines_that_this_project_starts_are_touched(ours, monkeypatch):
    """VLLM loads every installed plugin in every one of its processes, also in those of a user's own server."""
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    with marked_as_ours() if ours else nullcontext():
        context.Process(target=_followers_in_a_child, args=(there,), daemon=True).start()
    assert here.poll(30), "the child never answered"
    assert here.recv() is ours
    assert ENGINE_VARIABLE not in os.environ


def test_a_process_that_is_nobodys_child_is_left_alone(monkeypatch):
    monkeypatch.setenv(ENGINE_VARIABLE, "1")
    register()
    assert FOLLOWER not in {thread.name for thread in threading.enumerate()}


def test_a_reader_that_misses_a_ping_looks_again_soon(monkeypatch):
    shm_broadcast = pytest.importorskip("vllm.distributed.device_communicators.shm_broadcast")
    monkeypatch.setattr(shm_broadcast, "SHM_READER_RECHECK_INTERVAL_MS", 5_000)
    monkeypatch.setattr(shm_broadcast, "SPINLOOP_EXT_ENABLED", shm_broadcast.SPINLOOP_EXT_ENABLED)
    monkeypatch.setattr(shm_broadcast.SpinCondition, "__init__", shm_broadcast.SpinCondition.__init__)
    _wait_instead_of_spinning()
    timeout = shm_broadcast.MessageQueue.ReadTimeoutWithWarnings(timeout=None, should_warn=False)
    assert timeout.timeout_ms() == RECHECK_MS
