"""One local Ray for all tests here: started once, with resources of its own, and ended by who started it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import ray

from tests.audit_world import make_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from audit.snapshot.reader import VerifiedSnapshot


@pytest.fixture(scope="package")
def local_ray() -> Iterator[str]:
    """A running Ray; the value is the address of its dashboard."""
    started = ray.init(
        address="local", num_cpus=4, num_gpus=0, include_dashboard=True, dashboard_port=0, log_to_driver=False,
        configure_logging=False,
        _system_config={"memory_monitor_refresh_ms": 0},  # what else fills this machine is not what is tested
    )  # fmt: skip
    yield f"http://{started.dashboard_url}"
    ray.shutdown()


@pytest.fixture(scope="package")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> VerifiedSnapshot:
    folder: Path = tmp_path_factory.mktemp("store")
    return make_snapshot(folder / "memory")
