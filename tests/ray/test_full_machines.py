"""A machine without room, on a real Ray: one line, an exit code that says that the run can go on, and nothing lost."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_audit.errors import IncompleteError
from memory_audit.jobs.executors.on_ray import RayExecutor
from memory_audit.jobs.run.groups import plan
from memory_audit.models.fakes import FakeEmbedder
from tests.audit_world import FAKES, json_of, run_groups, run_local

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.ray


def test_a_full_object_store_is_one_line_and_once_there_is_room_again_the_same_is_answered():
    program, here = [sys.executable, "-m", "tests.ray.full_store"], Path(__file__).parents[2]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, check=True, cwd=here)
    full = "a machine's object store is full, and so is the disk that it spills to"
    assert done.stdout.splitlines() == [f"3 {FakeEmbedder().model_id} cannot be asked: {full}", "answered 512"]


@dataclass
class OnSmallDisk:
    """A work on a node whose files cannot grow beyond a size."""

    work: Any
    most_bytes: int

    @property
    def memory_bytes(self) -> int:
        return self.work.memory_bytes  # type: ignore[no-any-return]

    @property
    def parts(self) -> Any:
        return self.work.parts

    def __call__(self, executor: Any) -> Any:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.most_bytes, before[1]))
        try:
            return self.work(executor)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def failed(self, error: Exception) -> Any:
        return self.work.failed(error)


class SmallDisk(RayExecutor):
    def each(self, works: Sequence[Any]) -> Iterator[Any]:
        first, *others = works
        yield from super().each([*others, OnSmallDisk(first, 3_000)])


@pytest.mark.usefixtures("local_ray")
def test_a_full_disk_under_one_task_ends_the_run_in_one_line_and_the_next_start_ends_with_the_same_bytes(
    snapshot, tmp_path, monkeypatch
):
    reference = json_of(run_local(snapshot, tmp_path / "local"))
    monkeypatch.setattr(plan, "EVENTS", 1)
    with pytest.raises(IncompleteError, match=r"(?i)file too large|full|space") as stopped:
        run_groups(SmallDisk(FAKES), snapshot, tmp_path / "run")
    assert "\n" not in str(stopped.value)
    assert stopped.value.exit_code == 3
    assert not (tmp_path / "run" / "result.json").exists()
    result, failed = run_groups(RayExecutor(FAKES), snapshot, tmp_path / "run")
    assert (json_of(result), failed) == (reference, {})
