"""A vLLM plugin that ends orphans and spares cores, in the engines that MemAudit starts and in no other.

vLLM loads the plugins of its environment in each of its processes, so this one looks for ENGINE_VARIABLE, which
`marked_as_ours` sets while an engine starts; elsewhere it does nothing.

Its child processes end with their parent. A killed audit must not leave an engine behind that holds gigabytes.

On machines with few cores its engine process waits for the worker instead of spinning: vLLM polls shared memory in a
busy loop for a second after each message, which takes a core from the worker's threads where there are two. Waiting, a
reader now and then misses the ping of a message that is written while it lies down (the ping's queue keeps one message
and tells nobody of it who was awake a moment ago). vLLM looks again after five seconds; here after RECHECK_MS.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ENGINE_VARIABLE", "marked_as_ours", "register"]

ENGINE_VARIABLE = "MEMAUDIT_ENGINE"
"""Environment variable that is 1 in the processes of an engine that MemAudit started."""

FEW_CORES = 8
"""Up to here a spinning engine takes a share of the machine that shows in the measurements."""

RECHECK_MS = 5
"""How long a reader sleeps on a missed ping. Measured before: an engine idle for half of its time between replays."""

FOLLOWER = "memaudit-follow-parent"
"""Name of the thread that waits for the parent's end."""

ORPHANED = 1
"""Exit code of a child whose parent is gone."""


def register() -> None:
    """Install both in MemAudit's own engines; safe to call more than once, and in a process that is nobody's child."""
    if os.environ.get(ENGINE_VARIABLE) != "1":
        return
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), name=FOLLOWER, daemon=True).start()
    few_cores = len(os.sched_getaffinity(0)) <= FEW_CORES and not Path("/dev/nvidia0").exists()
    if few_cores and "vllm" in sys.modules:
        _wait_instead_of_spinning()


@contextmanager
def marked_as_ours() -> Iterator[None]:
    """Let the engine processes that are started in this block know that they are MemAudit's."""
    before = os.environ.get(ENGINE_VARIABLE)
    os.environ[ENGINE_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ENGINE_VARIABLE]
        else:
            os.environ[ENGINE_VARIABLE] = before


def _follow(sentinel: int) -> None:
    wait([sentinel])
    os._exit(ORPHANED)  # nobody is left to hear of an orderly shutdown


def _wait_instead_of_spinning() -> None:
    try:
        from vllm.distributed.device_communicators import shm_broadcast  # noqa: PLC0415 - only inside vLLM

        plain = shm_broadcast.SpinCondition.__init__
    except (ImportError, AttributeError):  # another vLLM: then it runs as it is
        return

    def patient(self: object, *args: object, **kwargs: object) -> None:
        kwargs["busy_loop_s"] = 0.0
        plain(self, *args, **kwargs)

    shm_broadcast.SpinCondition.__init__ = patient
    shm_broadcast.SPINLOOP_EXT_ENABLED = False
    shm_broadcast.SHM_READER_RECHECK_INTERVAL_MS = RECHECK_MS
