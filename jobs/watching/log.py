"""What a command tells while it is at work, as JSON lines on standard error: `memaudit --log-format json`.

    {"at": "2026-11-28T03:13:11.482Z", "level": "info", "run": "4f2a90c1", "tenant": null, "stage": "replay",
     "message": "replaying events (odds): 120/400, 12 s", "done": 120, "total": 400}

`error` is the kind of an error. Its line may quote what it complains of, so that it is told only of kinds that are
about no text; the others say so, and the same command in the plain form shows it.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from memory_audit.errors import HeldError, IncompleteError, StalePlanError
from memory_audit.jobs.watching.tally import kind_of
from memory_audit.report.untrusted import as_line

__all__ = ["LOG", "JsonLog"]

ABOUT_NO_TEXT = (HeldError, IncompleteError, StalePlanError)
"""Errors of exactly these kinds are about files, versions and counts."""

MAX_CHARS = 600


@dataclass(slots=True)
class JsonLog:
    """Writes lines; one that cannot be written ends no work."""

    run: str | None = None
    """Id of the run that lines are about, once that is known."""

    def __call__(self, message: str, *, level: str = "info", **fields: Any) -> None:
        """Write one line."""
        at = dt.datetime.now(tz=dt.UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        record = {
            "at": f"{at}Z", "level": level, "run": self.run, "tenant": None, "stage": None,
            "message": as_line(message, MAX_CHARS), **fields,
        }  # fmt: skip
        with suppress(OSError, ValueError):
            print(json.dumps(record), file=sys.stderr, flush=True)  # noqa: T201

    def error(self, error: BaseException, **fields: Any) -> None:
        """Write a line about an error."""
        kind = kind_of(error)
        said = str(error) if type(error) in ABOUT_NO_TEXT else f"{kind}: its line may quote a text; --log-format plain"
        self(said, level="error", error=kind, **fields)


LOG: ContextVar[JsonLog | None] = ContextVar("LOG", default=None)
"""Where commands tell what they do; None is a console, for people."""
