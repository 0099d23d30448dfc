"""The wall clock, as commands and guards read it."""

from __future__ import annotations

import time

__all__ = ["now_ms"]


def now_ms() -> int:
    """Read the clock, Unix milliseconds."""
    return time.time_ns() // 1_000_000
