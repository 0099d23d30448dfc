"""The demo on Ray: the same findings, byte for byte, as in one process."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Literal

import pytest
from rich.console import Console

from memory_audit.jobs.demo import run_demo
from tests.demo_world import PLANTED, write_corpus
from tests.whole import read_whole

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # ray leaves its log sockets to the collector
]


def findings(folder: Path, corpus: Path, executor: Literal["local", "ray"]) -> Any:
    report = run_demo(folder, Console(file=io.StringIO()), backbone="fake", executor=executor, corpus=corpus)
    return read_whole(report.parent).tenants


def test_ray_and_local_demos_find_the_same(tmp_path: Path):
    corpus = write_corpus(tmp_path / "corpus")
    on_ray = findings(tmp_path / "ray", corpus, "ray")
    removed = {tenant.tenant: set(tenant.removal.attributed) for tenant in on_ray}
    assert removed == PLANTED
    assert on_ray == findings(tmp_path / "local", corpus, "local")
