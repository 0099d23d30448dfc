"""The map of a memory: embeddings on a plane by their two main components, in cells, coloured by the worst finding.

Principal components (Pearson 1901) of at most MAX_MAPPED embeddings. A cell of the grid stands at the mean place of its
memories, so that few memories do not look like a grid. Words are those that a region has more often than the rest
(relative entropy of its share), from texts that are untrusted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from memory_audit.scan.detector import ScannedMemory

__all__ = ["HEIGHT", "MAX_MAPPED", "WIDTH", "Cell", "TopicMap", "Word"]

MAX_MAPPED = 100_000
"""Memories on a map: their embeddings are held in half precision, 77 MB at 384 dimensions."""

WIDTH, HEIGHT = 900.0, 460.0
COLUMNS, ROWS = 90, 46
"""Cells: 4,140 at most, half a megabyte of SVG."""

REGIONS = (5, 3)
MIN_SHARE = 0.02
"""Of the memories: a smaller region has no word."""

WORDS_OF_EACH = 16
WORD_CHARS = 18
CHUNK = 8_192
PAD = 22.0
_WORD = re.compile(r"[^\W\d_]{4,40}")


class Cell(NamedTuple):
    """Memories that lie close together."""

    x: float
    y: float
    radius: float
    memories: int
    found: int
    """Those with findings."""

    severity: str
    """The worst; empty where there is none."""

    href: str
    """Of the worst memory's card; empty where it has none."""


class Word(NamedTuple):
    """What a region is about: an attacker may have written it."""

    x: float
    y: float
    text: str


@dataclass(slots=True)
class TopicMap:
    """Takes tenants one by one, and is drawn once all are in."""

    left_out: int = 0
    """Memories without a place on it."""

    _vectors: list[NDArray[np.float16]] = field(default_factory=list)
    _words: list[tuple[str, ...]] = field(default_factory=list)
    _marks: dict[int, tuple[int, str, str]] = field(default_factory=dict)
    """Row to rank (0 is worst), severity and link, of memories with findings."""

    def add(self, memory: ScannedMemory, marks: Mapping[str, tuple[int, str, str]]) -> None:
        """Take a tenant's memory; `marks` has rank, severity and link of its memories with findings."""
        rows = None if memory.graph is None else memory.graph.responses
        begun = len(self._words)
        count = 0 if rows is None else min(len(rows), MAX_MAPPED - begun)
        if rows is None or not count or (self._vectors and self._vectors[0].shape[1] != rows.shape[1]):
            self.left_out += len(memory.entries)
            return
        self.left_out += len(memory.entries) - count
        self._vectors.append(rows[:count].astype(np.float16))
        for place, entry in enumerate(memory.entries[:count]):
            words = _WORD.findall(entry.matched[:400].lower())
            self._words.append(tuple(dict.fromkeys(words))[:WORDS_OF_EACH])
            if entry.entry_id in marks:
                self._marks[begun + place] = marks[entry.entry_id]

    def drawn(self) -> tuple[list[Cell], list[Word]]:
        """Return the cells, those with findings last so that they are painted on top, and the words."""
        if len(self._words) < 2:  # noqa: PLR2004 - one memory has no direction
            return [], []
        places = self._places()
        columns = np.minimum((places[:, 0] * COLUMNS / WIDTH).astype(int), COLUMNS - 1)
        rows = np.minimum((places[:, 1] * ROWS / HEIGHT).astype(int), ROWS - 1)
        cells = [self._cell(members, places) for members in _groups(rows * COLUMNS + columns)]
        return sorted(cells, key=lambda cell: (bool(cell.severity), cell.memories)), list(self._labels(places))

    def _places(self) -> NDArray[np.float64]:
        """Return pixels of the map, shape (memories, 2)."""
        vectors = np.concatenate(self._vectors)
        parts = [vectors[start : start + CHUNK].astype(np.float32) for start in range(0, len(vectors), CHUNK)]
        mean = sum(part.sum(axis=0, dtype=np.float64) for part in parts) / len(vectors)
        covariance = sum((part - mean).T @ (part - mean) for part in parts)
        _, axes = np.linalg.eigh(covariance)
        axes = axes[:, -2:][:, ::-1]
        axes *= np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1][: axes.shape[1]]])  # the same picture every time
        flat = np.concatenate([(part - mean) @ axes for part in parts])
        low, high = np.quantile(flat, (0.002, 0.998), axis=0)
        share = np.clip((flat - low) / np.maximum(high - low, 1e-9), 0, 1)
        places: NDArray[np.float64] = share * (WIDTH - 2 * PAD, HEIGHT - 2 * PAD) + PAD
        return places

    def _cell(self, members: NDArray[np.int64], places: NDArray[np.float64]) -> Cell:
        marked = [self._marks[row] for row in members.tolist() if row in self._marks]
        _, severity, href = min(marked, default=(0, "", ""))
        x, y = places[members].mean(axis=0)
        radius = min(2.2 + 1.1 * math.log2(len(members)), 11.0)
        return Cell(round(float(x), 1), round(float(y), 1), round(radius, 1), len(members), len(marked), severity, href)

    def _labels(self, places: NDArray[np.float64]) -> Iterator[Word]:
        overall = Counter(word for words in self._words for word in words)
        across, down = REGIONS
        regions = np.minimum((places * REGIONS / (WIDTH, HEIGHT)).astype(int), (across - 1, down - 1)) @ (1, across)
        taken: set[str] = set()
        for members in _groups(regions):
            if len(members) < max(MIN_SHARE * len(places), 3):
                continue
            here = Counter(word for row in members.tolist() for word in self._words[row])

            def telling(word: str, here: Counter[str] = here, size: int = len(members)) -> float:
                share = here[word] / size
                return share * math.log(share / (overall[word] / len(self._words)))

            best = max((word for word in here if word not in taken), key=lambda word: (telling(word), word), default="")
            if best and telling(best) > 0:
                taken.add(best)
                x, y = np.median(places[members], axis=0)
                yield Word(round(float(x), 1), round(float(y), 1), as_line(best, WORD_CHARS))


def _groups(labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows of each label."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
