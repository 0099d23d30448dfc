"""Memories past the date that their own metadata gives them, and memories from the future.

Read are metadata keys by which stores say until when a record holds, in any case and with `-` or `_`. Dates are ISO
8601 (UTC where no zone is given) or Unix time in seconds or milliseconds; `ttl` counts seconds from the memory's
creation. What cannot be read tells nothing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from memory_audit.entry import MAX_TIME_MS
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import finding_about

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory
    from memory_audit.scan.finding import Finding

__all__ = ["Stale"]

ENDS = frozenset({
    "expires", "expires_at", "expires_on", "expiry", "expiration", "expiration_date", "expiry_date", "valid_until",
    "valid_to", "not_after", "invalid_at", "ends_at",
})  # fmt: skip
LIFETIMES = frozenset({"ttl", "ttl_s", "ttl_seconds", "time_to_live", "max_age"})

AHEAD_MS = 24 * 3_600_000
"""A clock of another zone, or one that is wrong by hours, is no finding."""

SECONDS_BELOW = 100_000_000_000
"""Smaller numbers are seconds, larger ones milliseconds: the year 5138 in the one, 1973 in the other."""

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

KINDS = {
    "expired": Kind(
        title="A memory past its own date",
        advice="Remove it, or renew its date: the agent still reads it as true.",
        severity="low",
    ),
    "future-date": Kind(
        title="A memory from the future",
        advice="Correct the writer's clock. Where a store prefers recent memories, a date ahead puts one in front.",
        severity="low",
        taxonomy=("ASI06", "AML.T0080.000"),
    ),
}


class Stale:
    """See the module."""

    name = "stale"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset({"outside"})
    alone = False  # it depends on the scan's clock

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield a finding for each memory past its date, and for each that is dated ahead of the scan's clock."""
        for entry in entries:
            ended = next(((key, end) for key, end in _ends(entry) if end <= memory.now_ms), None)
            if ended is not None:
                key, end_ms = ended
                yield finding_about(
                    entry, detector=self.name, kind="expired", severity="low", message="its own metadata says it ended",
                    evidence=[("key", key), ("ended", _date(end_ms))],
                )  # fmt: skip
            if entry.created_at_ms > memory.now_ms + AHEAD_MS:
                yield finding_about(
                    entry, detector=self.name, kind="future-date", severity="low",
                    message="its date is later than this scan", evidence=[("created", _date(entry.created_at_ms))],
                )  # fmt: skip


def _ends(entry: Entry) -> Iterator[tuple[str, int]]:
    """Yield metadata keys that end a memory, each with the time, Unix milliseconds."""
    for key, value in entry.metadata.items():
        name = key.strip().casefold().replace("-", "_")
        if name in ENDS:
            end_ms = _time_ms(value.strip())
        elif name in LIFETIMES and _NUMBER.fullmatch(value.strip()):
            end_ms = entry.created_at_ms + round(float(value) * 1000)
        else:
            continue
        if end_ms is not None and 0 < end_ms <= MAX_TIME_MS:
            yield key, end_ms


def _time_ms(value: str) -> int | None:
    if _NUMBER.fullmatch(value):
        return round(float(value) * (1000 if float(value) < SECONDS_BELOW else 1))
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _date(time_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="seconds")
    except OverflowError:  # the last hours of the year 9999
        return "9999-12-31"
