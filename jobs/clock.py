"""The wall clock, as commands and guards read it."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import time
from typing import TYPE_CHECKING

from memory_audit.entry import MAX_TIME_MS
from memory_audit.errors import UsageError
from memory_audit.snapshot.manifest import MAX_CLOCK_SKEW_MS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["as_utc", "now_ms", "publisher_ms"]

FIRST_MS = 1_577_836_800_000
"""2020: a file system whose files are older keeps no time (mounts of object stores), and is no witness."""


def now_ms() -> int:
    """Read the clock, Unix milliseconds."""
    return time.time_ns() // 1_000_000


def publisher_ms(store: Path) -> int:
    """Read the clock to date a version with, and compare it with that of the file system where it will lie.

    On a network file system that is the server's: a machine whose clock is ahead would stop all who share the store.

    Raises:
        UsageError: this clock is further ahead than readers take; nothing was published.
    """
    now = now_ms()
    there = _file_system_ms(store)
    if there is not None and now > there + MAX_CLOCK_SKEW_MS:
        raise UsageError(
            f"this machine's clock says {as_utc(now)}, that of the file system of {store} says {as_utc(there)}: set "
            "right which is wrong; readers refuse a version from the future"
        )
    return now


def as_utc(moment_ms: int) -> str:
    """Return a moment, of Unix milliseconds from 0 to MAX_TIME_MS, as date and time to the minute."""
    return f"{dt.datetime.fromtimestamp(min(moment_ms, MAX_TIME_MS - 1) / 1_000, dt.UTC):%Y-%m-%d %H:%M} UTC"


def _file_system_ms(store: Path) -> int | None:
    """Return the time that a file written now is given; None where none can be written, or no time is kept."""
    folder = store
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            probe.write(b"?")
            os.fsync(probe.fileno())
            there = os.fstat(probe.fileno()).st_mtime_ns // 1_000_000
    except OSError:  # whoever publishes there is told so
        return None
    return there if there >= FIRST_MS else None
