"""A machine whose object store is full, and whose disk takes nothing more: what `test_full_machines` runs.

    python -m tests.ray.full_store      prints a line for each thing tried

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


class BigWork:
    """A work that is too large to be sent without the store."""

    memory_bytes = 1 << 20

    def __init__(self) -> None:
        self.ballast = bytes(1 << 19)

    def __call__(self, _executor: object) -> int:
        return len(self.ballast)

    def failed(self, error: Exception) -> int:
        raise error


def main() -> None:
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
        object_store_memory=STORE_BYTES,
        _system_config={"local_fs_capacity_threshold": 0.0001, "memory_monitor_refresh_ms": 0},
    )  # fmt: skip
    executor = RayExecutor(FAKES)
    executor.embedder.embed(["started"])
    held = fill()
    for ask in (lambda: executor.embedder.embed(TEXTS), lambda: list(executor.each([BigWork()]))):
        try:
            print("answered", len(ask()))  # type: ignore[no-untyped-call]
        except AuditError as error:
            print(error.exit_code, error)
    del held
    print("answered", len(executor.embedder.embed(TEXTS)), list(executor.each([BigWork()])))
    executor.close()
    ray.shutdown()


if __name__ == "__main__":
    main()
