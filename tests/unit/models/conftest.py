"""What tests of models share: a cache of its own for those that build things, and Ray in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_audit.models.weights.cache import CACHE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    import ray  # noqa: PLC0415 - most tests of models need none

    if ray.is_initialized():
        yield
        return
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()
