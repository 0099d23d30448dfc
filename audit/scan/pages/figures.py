"""The store in figures: when memories were written, by whom, from which sources, how old they are."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from memory_audit.entry import Entry

__all__ = ["Bar", "Growth", "Share", "StoreFigures"]

BARS = 60
TOP = 10
"""Writers that are named."""

DAY_MS = 86_400_000
AGES = (
    ("under a day", 1), ("under a week", 7), ("under a month", 30), ("under a quarter", 91), ("under a year", 365),
)  # fmt: skip


class Share(NamedTuple):
    """One line of a table: what, how many memories, and how many of them with findings."""

    name: str
    memories: int
    found: int


class Bar(NamedTuple):
    """Memories of a span of time."""

    begin_ms: int
    memories: int
    found: int


class Growth(NamedTuple):
    """Spans of equal length; `outside` memories state times far from all others'."""

    bars: list[Bar]
    outside: int


@dataclass(slots=True)
class StoreFigures:
    """Takes tenants one by one."""

    now_ms: int
    _times: array[int] = field(default_factory=lambda: array("q"))
    _found: bytearray = field(default_factory=bytearray)
    _writers: Counter[tuple[str, bool]] = field(default_factory=Counter)
    _sources: Counter[tuple[str, bool]] = field(default_factory=Counter)

    def add(self, entries: Iterable[Entry], found: Container[str]) -> None:
        """Take a tenant's memories; `found` has the ids of those with findings."""
        for entry in entries:
            has = entry.entry_id in found
            self._times.append(entry.created_at_ms)
            self._found.append(has)
            self._writers[entry.principal, has] += 1
            self._sources[entry.source, has] += 1

    @property
    def writers(self) -> tuple[list[Share], int]:
        """Those of most memories, and how many more there are."""
        shares = _shares(self._writers)
        return shares[:TOP], max(len(shares) - TOP, 0)

    @property
    def sources(self) -> list[Share]:
        """All of them."""
        return _shares(self._sources)

    @property
    def ages(self) -> list[Share]:
        """By the times that writers state, the youngest first."""
        days = (self.now_ms - np.array(self._times, np.int64)) / DAY_MS
        found = np.frombuffer(self._found, np.uint8).astype(bool)
        group = np.digitize(days, [0, *(limit for _, limit in AGES)])
        names = ("dated after this scan", *(name for name, _ in AGES), "a year or more")
        shares = (
            Share(name, int((group == place).sum()), int(found[group == place].sum()))
            for place, name in enumerate(names)
        )
        return [share for share in shares if share.memories]

    @property
    def growth(self) -> Growth:
        """Writing over time; of many memories the outermost thousandth on each side is left out."""
        if not self._times:
            return Growth([], 0)
        times, found = np.array(self._times, np.int64), np.frombuffer(self._found, np.uint8)
        low, high = (
            np.quantile(times, (0.001, 0.999), method="nearest") if len(times) > TOP else (min(times), max(times))
        )
        low, high = int(low), max(int(high), int(low) + BARS)
        counts, edges = np.histogram(times, BARS, (low, high))
        marked, _ = np.histogram(times, BARS, (low, high), weights=found)
        bars = [
            Bar(int(begin), count, int(of)) for begin, count, of in zip(edges, counts.tolist(), marked, strict=False)
        ]
        return Growth(bars, len(times) - int(counts.sum()))


def _shares(counts: Counter[tuple[str, bool]]) -> list[Share]:
    found = Counter({name: count for (name, has), count in counts.items() if has})
    total = Counter(found)
    total.update({name: count for (name, has), count in counts.items() if not has})
    return [
        Share(name, count, found[name]) for name, count in sorted(total.items(), key=lambda item: (-item[1], item[0]))
    ]
