"""What a guard's server tells its operator on standard error: lines, bounded in total whatever clients do."""

from __future__ import annotations

import logging
import math
import sys
import time
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

from aiohttp.http_exceptions import HttpProcessingError

from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Told", "UnforeseenErrors"]

CALM_S = 60.0
"""Time between two lines of one kind, whose words a writer may have a part in."""

MOST_BYTES = 1 << 16
"""Told of one kind until the server ends: a hundred lines at least. There are fewer than ten kinds."""

MOST_UNFORESEEN = 100
"""Lines about errors that nobody foresaw; there are fewer kinds, unless the code has a fault."""

MOST_CHARS = 600
"""Of one line: a reason with two paths in it."""


class Told:
    """Prints lines on standard error: of a kind none twice in a row, one in `CALM_S` seconds, `MOST_BYTES` in all."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, float]] = {}
        self._bytes: dict[str, int] = {}

    def __call__(self, kind: str, line: str) -> None:
        """Print one line, unless it is not its turn.

        Args:
            kind: One of few, with no word of a client's in it.
            line: Cut to a bound.
        """
        last, told_s = self._last.get(kind, ("", -math.inf))
        now_s, told_bytes = time.monotonic(), self._bytes.get(kind, 0)
        if line == last or now_s - told_s < CALM_S or told_bytes >= MOST_BYTES:
            return
        shown = as_line(line, MOST_CHARS)
        self._last[kind] = line, now_s
        self._bytes[kind] = told_bytes + len(shown.encode(errors="replace"))
        _print(shown if self._bytes[kind] < MOST_BYTES else f"{shown} (nothing more of this kind is told)")

    def ended(self, kind: str) -> None:
        """Let the next line of a kind be told at once, also where it is the last one again: what it told of is over."""
        self._last.pop(kind, None)


class UnforeseenErrors(logging.Handler):
    """Tells what aiohttp and asyncio log, in one line, none twice: whoever connects can cause it, without a token.

    The line is the kind of error and its place in the code: so there are few, with no word of a client's in them.

    Args:
        refused: Called with the status of a request that never came to the application.
    """

    def __init__(self, refused: Callable[[int], None]) -> None:
        super().__init__()
        self._refused = refused
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Tell what a logger was given."""
        error = record.exc_info[1] if record.exc_info else None
        if record.msg == "Error handling request from %s":
            self._refused(error.code if isinstance(error, HttpProcessingError) else 500)
        self._tell("a request went wrong", str(record.msg) if error is None else _kind(error))

    def in_loop(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Tell of an error that came to the event loop, as its exception handler."""
        error = context.get("exception")
        self._tell(
            "an error came to the event loop",
            _kind(error) if isinstance(error, BaseException) else str(context["message"]),
        )

    def _tell(self, what: str, kind: str) -> None:
        line = f"{what}: {kind}"
        if line not in self._told and len(self._told) < MOST_UNFORESEEN:
            self._told.add(line)
            _print(as_line(line, MOST_CHARS))


def _kind(error: BaseException) -> str:
    """Return the kind of an error and where it was raised."""
    places = [f" in {Path(frame.f_code.co_filename).name}:{line}" for frame, line in walk_tb(error.__traceback__)]
    return f"{type(error).__name__}{places[-1] if places else ''}"


def _print(line: str) -> None:
    """Print on standard error if it takes it: a full disk or a reader that left must end nothing."""
    with suppress(OSError, ValueError):
        print(f"memaudit: {line}", file=sys.stderr, flush=True)  # noqa: T201
