"""What a run or a night is doing now: small files, written as it goes on, and read by `memaudit status`.

    {"stage": "round 3", "done": 120, "total": 400, "spent_s": 38.5, "left_s": 89.0, "at_ms": 1760000000000,
     "host": "node-3", "pid": 4711, "tally": {"run": "4f2a90c1", …}}

    RUN/status.json         by the command, or NIGHTS/status.json
    RUN/at-work/6d-a1.json  by whoever audits a group of tenants, here or on another node; gone when the group is done

They hold no text of a memory (`memory_audit.jobs.watching.tally`). Nothing depends on them: where they cannot be
written, the work goes on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Self

import msgspec
from msgspec import Meta

from memory_audit.counted import counted
from memory_audit.errors import AuditError, UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_regular
from memory_audit.formats.records import convert
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.run.run_files import AT_WORK
from memory_audit.jobs.watching.tally import Tally
from memory_audit.provenance import durable
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_audit.jobs.watching.progress import Stage

__all__ = ["EVERY_S", "STATUS_FILE", "Status", "StatusFile", "groups_at_work", "read_status", "status_lines"]

STATUS_FILE = "status.json"

EVERY_S = 2.0
"""Between two writings of one stage."""

SILENT_S = 60.0
"""After which a reader is told how long nothing was heard."""

MAX_BYTES = 65_536

MOST_GROUPS = 20
"""Groups at work that are told of one by one."""

Number = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How far a piece of work is."""

    stage: str
    done: Number
    total: Number | None
    spent_s: Seconds
    left_s: Seconds | None
    at_ms: Number
    """When this was told, Unix milliseconds."""

    host: str
    pid: int
    tally: Tally


@dataclass(slots=True)
class StatusFile:
    """Hears the progress of work, and writes it down; as a context, it is gone when the work ends."""

    path: Path
    beside: str = "."
    """File without which nothing is written: a folder must have become what it is to be."""

    tally: Tally = field(default_factory=Tally)
    """Of the work, counted by who hears it."""

    _stage: Stage | None = field(default=None, init=False)
    _written: tuple[int, float] = field(default=(0, 0.0), init=False)
    """How much was done, and when that was told."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stage is not None and self.path.exists():  # else it is another's, who is at work
            with contextlib.suppress(OSError):
                self.path.unlink()

    def __call__(self, stage: Stage) -> None:
        """Write how far a stage is, unless it was told a moment ago; its begin and its end are always told."""
        now, (done, told_s) = time.monotonic(), self._written
        if stage is self._stage and (stage.done == done or (stage.done != stage.total and now - told_s < EVERY_S)):
            return
        self._stage, self._written = stage, (stage.done, now)
        left_s = stage.left_s()
        record = Status(
            stage=stage.name, done=stage.done, total=stage.total, spent_s=round(stage.spent_s(), 1),
            left_s=None if left_s is None else round(left_s, 1), at_ms=now_ms(), host=socket.gethostname(),
            pid=os.getpid(), tally=self.tally,
        )  # fmt: skip
        if (self.path.parent / self.beside).exists():
            with contextlib.suppress(AuditError):
                durable.replace(self.path, msgspec.json.encode(record), synced=False)


def read_status(path: Path) -> Status | None:
    """Read what work told last, by the word of a file that anybody may have written; None where it told nothing yet.

    Raises:
        UsageError: the file is damaged.
    """
    try:
        record = outside_json.decode(read_regular(path, MAX_BYTES), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    return convert(record, Status, str(path))


def groups_at_work(run: Path) -> dict[str, Status]:
    """Return what is told of a run's groups that are at work, by name; what cannot be read is left out."""
    found = {}
    for path in sorted((run / AT_WORK).glob("*.json")):
        with contextlib.suppress(UsageError):
            if (told := read_status(path)) is not None:
                found[path.stem] = told
    return found


def status_lines(told: Status | None, groups: dict[str, Status], now_ms: int) -> Iterator[str]:
    """Say how far work is, and each group of tenants that is at work."""
    if told is not None:
        yield _line(told, now_ms)
    if told is not None and "group" in told.tally.stages:
        group, tenant = told.tally.of("group"), told.tally.of("tenant")
        of_all = group.done + group.waiting
        yield (
            f"groups: {group.done:,} of {counted(of_all, 'group')} done, {len(groups):,} at work; tenants: "
            f"{tenant.done:,} of {tenant.done + tenant.waiting:,}"
        )
    for name in sorted(groups)[:MOST_GROUPS]:
        yield f"  {as_line(name)}: {_line(groups[name], now_ms)}"
    if told is not None and told.tally.errors:
        kinds = ", ".join(f"{count:,} {as_line(kind)}" for kind, count in sorted(told.tally.errors.items()))
        ago_s = max(now_ms - (told.tally.error_at_ms or now_ms), 0) / 1_000
        yield f"errors: {kinds}; the last one {ago_s:.0f} s ago"
        yield from (f"  failed: {as_line(tenant)} ({as_line(kind)})" for tenant, kind in told.tally.failed.items())


def _line(told: Status, now_ms: int) -> str:
    parts = [f"{as_line(told.stage)}: {told.done:,}" + ("" if told.total is None else f"/{told.total:,}")]
    if told.done and told.spent_s:
        parts.append(f"{told.done / told.spent_s:.3g} a second")
    if told.left_s is not None:
        parts.append(f"about {told.left_s:.0f} s left")
    silent_s = (now_ms - told.at_ms) / 1_000
    if silent_s > SILENT_S:
        parts.append(f"nothing heard for {silent_s:.0f} s")
    return f"{', '.join(parts)}; process {told.pid} on {as_line(told.host)}"
