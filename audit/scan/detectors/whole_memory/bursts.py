"""Writers with unusual bursts: far more memories of one writer in a window than any writer's windows usually hold.

Two clocks are read, and either one suffices. `created_at_ms` is the writer's word: a flood whose stated times are
spread over a year still lies in one place of the log, whose order no writer can forge.

    stated   windows of an hour
    logged   windows of 100 memories that follow on each other

Counted are the memories of each writer in each window where it wrote. A count is unusual where it is 20 or more, and
the modified z-score of its logarithm is above 3.5 (Iglewicz and Hoaglin 1993): 0.6745 (x - median) / MAD, and where MAD
is 0, (x - median) / (1.2533 mean deviation). A few bursts move neither median nor MAD.

A writer's bursts are one finding, which stays the same one when another comes: who is known for them is accepted once.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.counted import counted
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding
from memory_audit.scan.group import excerpt, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory

    _Window = tuple[str, int]
    """Writer, and the number of a window on one clock."""

__all__ = ["Bursts"]

HOUR_MS = 3_600_000
LOG_WINDOW = 100
UNUSUAL = 3.5
NORMAL_MAD = 0.6745
NORMAL_MEAN_DEVIATION = 1.2533

MIN_WINDOWS = 10
"""Fewer do not tell what is usual."""

MIN_MEMORIES = 20
"""What a person can write in an hour."""

MAX_SHOWN = 5
"""Windows told of one writer on one clock, the fullest first."""

KINDS = {
    "burst": Kind(
        title="A writer with an unusual burst of memories",
        advice="Find out whether this writer imports in bulk or consolidates memories. If not, read what it wrote "
        "then, and find out whose account it is.",
        severity="low",
        taxonomy=("ASI06", "AML.T0080.000"),
    )
}


class Bursts:
    """See the module."""

    name = "bursts"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset()
    alone = False

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each writer with a burst, in the order of their first memories in one."""
        del entries  # what is usual depends on all
        stated = [(entry.principal, entry.created_at_ms // HOUR_MS) for entry in memory.entries]
        logged = [(entry.principal, place // LOG_WINDOW) for place, entry in enumerate(memory.entries)]
        hours, parts = _unusual(Counter(stated)), _unusual(Counter(logged))
        members: dict[str, list[Entry]] = {}
        for entry, hour, part in zip(memory.entries, stated, logged, strict=True):
            if hour in hours or part in parts:
                members.setdefault(entry.principal, []).append(entry)
        shown = {writer: [Evidence(label="writer", value=writer)] for writer in members}
        for (writer, number), count in _fullest(hours):
            shown[writer].append(Evidence(label="stated", value=f"{_hour(number)}: {counted(count, 'memory')}"))
        for (writer, number), count in _fullest(parts):
            first, last = number * LOG_WINDOW + 1, (number + 1) * LOG_WINDOW
            shown[writer].append(Evidence(label="logged", value=f"{counted(count, 'memory')} of {first:,} to {last:,}"))
        for writer, written in members.items():
            ids, affected = named((entry.entry_id for entry in written), len(written))
            yield Finding(
                detector=self.name, kind="burst", tenant=memory.tenant, entry_ids=ids, affected=affected,
                severity="low", message=f"{counted(len(written), 'memory')} of one writer came in bursts",
                evidence=(*shown[writer], excerpt("first", written[0])), key=writer,
            )  # fmt: skip


def _unusual(counts: Mapping[_Window, int]) -> dict[_Window, int]:
    """Return the windows whose count is unusual (see the module)."""
    if len(counts) < MIN_WINDOWS:
        return {}
    logs = np.log(np.fromiter(counts.values(), np.float64, len(counts)))
    away = logs - np.median(logs)
    spread = float(np.median(np.abs(away))) / NORMAL_MAD or float(np.abs(away).mean()) * NORMAL_MEAN_DEVIATION
    return {
        window: count
        for (window, count), distance in zip(counts.items(), away.tolist(), strict=True)
        if count >= MIN_MEMORIES and distance > UNUSUAL * spread
    }


def _fullest(found: Mapping[_Window, int]) -> Iterator[tuple[_Window, int]]:
    """Yield each writer's fullest windows."""
    told: Counter[str] = Counter()
    for window, count in sorted(found.items(), key=lambda item: (-item[1], item[0])):
        told[window[0]] += 1
        if told[window[0]] <= MAX_SHOWN:
            yield window, count


def _hour(number: int) -> str:
    return datetime.fromtimestamp(number * HOUR_MS // 1000, UTC).strftime("%Y-%m-%d %H:00 UTC")
