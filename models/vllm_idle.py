"""A vLLM plugin for machines with few cores: its engine process waits for the worker instead of spinning.

vLLM's engine polls shared memory in a busy loop for a second after each message. On a machine with many cores that
saves microseconds; where the worker's threads need every core it takes one away from them. The plugin is loaded by
vLLM itself, in each of its processes, through the entry point group `vllm.general_plugins`.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["register"]

FEW_CORES = 8
"""Up to here a spinning engine takes a share of the machine that shows in the measurements."""


def register() -> None:
    """Let readers of vLLM's message queue sleep at once; nothing is changed on large or GPU machines."""
    if len(os.sched_getaffinity(0)) > FEW_CORES or Path("/dev/nvidia0").exists():
        return
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
