"""The vLLM plugin: children end with their parent, and nothing else about a process changes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

import pytest

from memory_audit.models.backbone.vllm_plugin import FOLLOWER, RECHECK_MS, _wait_instead_of_spinning, register


def _grandchild(pipe) -> None:
    register()
    pipe.send(os.getpid())
    time.sleep(60)


def _child(pipe) -> None:
    context = multiprocessing.get_context("spawn")
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


def test_a_process_that_is_nobodys_child_is_left_alone():
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
