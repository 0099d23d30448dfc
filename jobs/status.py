"""What a run or a night is doing now: a small file, written as it goes on, and read by `memaudit status`.

    {"stage": "round 3", "done": 120, "total": 400, "spent_s": 38.5, "left_s": 89.0, "at_ms": 1760000000000,
     "host": "node-3", "pid": 4711}

It holds no text of a memory. Nothing depends on it: where it cannot be written, the work goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from memory_audit.errors import AuditError, UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_regular
from memory_audit.jobs.clock import now_ms
from memory_audit.provenance import durable
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_audit.jobs.progress import Stage

__all__ = ["STATUS_FILE", "StatusFile", "read_status", "status_line"]

STATUS_FILE = "status.json"

EVERY_S = 2.0
"""Between two writings of one stage."""

SILENT_S = 60.0
"""After which a reader is told how long nothing was heard."""

MAX_BYTES = 65_536


@dataclass(slots=True)
class StatusFile:
    """Hears the progress of work, and writes it down; as a context, it is gone when the work ends."""

    path: Path
    beside: str = "."
    """File without which nothing is written: a folder must have become what it is to be."""

    _stage: Stage | None = field(default=None, init=False)
    _written: float = field(default=0.0, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stage is not None and self.path.exists():  # else it is another's, who is at work
            with contextlib.suppress(AuditError):
                durable.remove(self.path)

    def __call__(self, stage: Stage) -> None:
        """Write how far a stage is, unless it was told a moment ago; its begin and its end are always told."""
        now = time.monotonic()
        if stage is self._stage and stage.done != stage.total and now - self._written < EVERY_S:
            return
        self._stage, self._written = stage, now
        record = {
            "stage": stage.name, "done": stage.done, "total": stage.total, "spent_s": round(stage.spent_s(), 1),
            "left_s": None if (left_s := stage.left_s()) is None else round(left_s, 1), "at_ms": now_ms(),
            "host": socket.gethostname(), "pid": os.getpid(),
        }  # fmt: skip
        if (self.path.parent / self.beside).exists():
            with contextlib.suppress(AuditError):
                durable.replace(self.path, json.dumps(record).encode())


def read_status(path: Path) -> dict[str, Any] | None:
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
    numbers = ("done", "spent_s", "at_ms")
    if isinstance(record, dict) and all(isinstance(record.get(name), int | float) for name in numbers):
        return record
    raise UsageError(f"{path}: not a status")


def status_line(record: Mapping[str, Any], now_ms: int) -> str:
    """Say in one line how far work is."""
    done, total, spent_s, left_s = (record.get(name) for name in ("done", "total", "spent_s", "left_s"))
    parts = [f"{as_line(str(record.get('stage')))}: {done:,}" + (f"/{total:,}" if isinstance(total, int) else "")]
    if done and spent_s:
        parts.append(f"{done / spent_s:.3g} a second")
    if isinstance(left_s, int | float):
        parts.append(f"about {left_s:.0f} s left")
    silent_s = (now_ms - record["at_ms"]) / 1_000
    if silent_s > SILENT_S:
        parts.append(f"nothing heard for {silent_s:.0f} s")
    return f"{', '.join(parts)}; process {as_line(str(record.get('pid')))} on {as_line(str(record.get('host')))}"
