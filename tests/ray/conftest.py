"""One local Ray for all tests here: started once, with resources of its own, and ended by who started it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import ray

from tests.audit_world import make_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ray._private.worker import RayContext

    from memory_audit.snapshot.reader import VerifiedSnapshot


@pytest.fixture(scope="package")
def local_ray() -> Iterator[str]:
    """A running Ray whose jobs find this environment's programs; the value is the address of its dashboard."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", programs)
        started = _start()
    yield f"http://{started.dashboard_url}"
    ray.shutdown()


def _start() -> RayContext:
    return ray.init(
        address="local", num_cpus=4, num_gpus=1, include_dashboard=True, dashboard_port=0, log_to_driver=False,
        configure_logging=False,
        _system_config={"memory_monitor_refresh_ms": 0},  # what else fills this machine is not what is tested
    )  # fmt: skip


@pytest.fixture(scope="package")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> VerifiedSnapshot:
    folder: Path = tmp_path_factory.mktemp("store")
    return make_snapshot(folder / "memory")
