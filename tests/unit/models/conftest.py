"""A cache of its own for tests that build things."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_audit.models.weights.cache import CACHE_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder
