"""A machine whose object store is full, and whose disk takes nothing more: what `test_full_machines` runs.

    python -m tests.ray.full_store      prints what came of asking, with and without room

A program of its own: the store of the other tests here has room, and Ray is told of the disk as it starts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from memory_audit.errors import AuditError
from memory_audit.jobs.executors.on_ray import RayExecutor
from tests.audit_world import FAKES

STORE_BYTES = 80 << 20
"""Ray's least, about."""

TEXTS = ["word " * 1_000] * 512
"""More than what Ray sends without its store."""


def fill() -> list[Any]:
    """Put things into the store until it takes none."""
    held: list[Any] = []
    for size in (8 << 20, 1 << 20, 1 << 18):
        with suppress(RayError):
            while True:
                held.append(ray.put(np.ones(size // 8)))
    return held


def main() -> None:
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
        object_store_memory=STORE_BYTES,
        _system_config={"local_fs_capacity_threshold": 0.0001, "memory_monitor_refresh_ms": 0},
    )  # fmt: skip
    executor = RayExecutor(FAKES)
    executor.embedder.embed(["started"])
    held = fill()
    try:
        executor.embedder.embed(TEXTS)
    except AuditError as error:
        print(error.exit_code, error)  # noqa: T201 - for who started it
    del held
    print("answered", len(executor.embedder.embed(TEXTS)))  # noqa: T201 - likewise
    executor.close()
    ray.shutdown()


if __name__ == "__main__":
    main()
