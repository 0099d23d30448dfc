"""Geometry of the report's two drawings: influence (CMIS) against inconsistency (CAS), and the memory graph.

Positions only, in pixels of a fixed viewBox: the template writes the SVG, so that every text passes the same escaping.
Both are bounded, and say how many entries they leave out. The same result gives the same drawing (seeded layout).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import networkx as nx

from memory_audit.consistency.graph import CONTRADICTION_WEIGHT
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from memory_audit.result import EntryScore, GraphEdge

__all__ = ["HEIGHT", "MAX_NODES", "MAX_POINTS", "WIDTH", "Axis", "Drawing", "draw_graph", "draw_scatter"]

MAX_POINTS = 1_500
"""Points in a scatter; more make the page slow and no clearer."""

MAX_NODES = 300
"""Nodes in a drawn graph; above this a force layout is a hairball."""

MAX_EDGES = 1_500
WIDTH, HEIGHT = 560.0, 400.0
LAYOUT_SEED = 7
LABEL_CHARS = 18
MAX_LABELS = 10

_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 542.0, 32.0, 346.0
"""Edges of the scatter; outside are ticks and the axes' names."""

_LANE = 30.0
"""Height that the entries which no replay left out have for themselves, at the bottom."""

_PAD = 26.0
"""Around the graph."""

_MARGIN = 4.0
"""Between a label and the edge of the picture."""

_LETTER = 6.2
"""Width of a label's letter in pixels, about."""


class Mark(NamedTuple):
    """One entry in a drawing."""

    x: float
    y: float
    radius: float
    kind: str
    """CSS class: `removed`, `flagged` or `kept`."""

    title: str
    """Shown on hover."""

    href: str
    """Anchor of the entry's card, or empty."""


class Line(NamedTuple):
    """An edge of the graph, or a line of the scatter."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: str
    """CSS class: `conflict` or `near`; `grid`, `axis`, `lane` or `cut`."""

    title: str = ""
    width: float = 1.0


class Label(NamedTuple):
    """A text: `tag` names a mark, `tick` is a number on an axis, `name` says what an axis is."""

    x: float
    y: float
    text: str
    kind: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Lines are painted first, then marks, then labels."""

    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    labels: tuple[Label, ...]
    marks_left_out: int
    lines_left_out: int = 0


def draw_scatter(
    scores: Sequence[EntryScore], anchors: Mapping[str, str], removed: Collection[str], unusual_cas: float | None
) -> Drawing:
    """Draw influence (up) against inconsistency (right) of the entries that have one.

    Entries without an influence lie in a lane of their own. Removed ones come first where there are too many.

    Args:
        scores: Of one tenant, finite.
        anchors: Entry id to the `href` of its card.
        removed: Entry ids that go.
        unusual_cas: Where the line of eq. 9 stands; None draws none.
    """
    drawn = [score for score in _by_importance(scores, removed) if score.cas is not None][:MAX_POINTS]
    cas = [score.cas or 0.0 for score in drawn]
    known = [score.cmis for score in drawn if score.cmis is not None]
    has_lane = len(known) < len(drawn)
    lane = _BOTTOM - 11
    across = Axis.over(cas, _LEFT, _RIGHT)
    up = Axis.over(known, _BOTTOM - (_LANE if has_lane else 0.0), _TOP)
    spots = [(across.place(score.cas or 0.0), lane if score.cmis is None else up.place(score.cmis)) for score in drawn]
    lines = [Line(x, _TOP, x, _BOTTOM, "grid") for x, _ in across.ticks()]
    lines += [Line(_LEFT, y, _RIGHT, y, "grid") for y, _ in up.ticks()]
    lines.append(Line(_LEFT, up.place(0.0), _RIGHT, up.place(0.0), "axis"))
    labels = [Label(x, _BOTTOM + 18, text, "tick", "middle") for x, text in across.ticks()]
    labels += [Label(_LEFT - 8, y + 3.5, text, "tick", "end") for y, text in up.ticks()]
    labels.append(Label((_LEFT + _RIGHT) / 2, _BOTTOM + 40, "inconsistency (CAS) →", "name", "middle"))
    labels.append(Label(12, 18, "↑ influence on harm (CMIS)", "name", "start"))
    if has_lane:
        lines.append(Line(_LEFT, lane, _RIGHT, lane, "lane", width=22))
        labels.append(Label(_LEFT - 8, lane + 3.5, "unknown", "tick", "end"))
    if unusual_cas is not None and cas and min(cas) < max(cas):
        unusual = across.place(unusual_cas)
        if unusual <= _RIGHT:
            lines.append(Line(unusual, _TOP, unusual, _BOTTOM, "cut"))
            side = (-5, "end") if unusual > WIDTH / 2 else (5, "start")
            labels.append(Label(unusual + side[0], _TOP + 10, "unusual (above μ + 2σ)", "tick", side[1]))
    return Drawing(
        lines=tuple(lines),
        marks=_marks(drawn, spots, [6.0 if score.entry_id in removed else 4.0 for score in drawn], anchors, removed),
        labels=(*labels, *_tags(drawn, spots, removed)),
        marks_left_out=len(scores) - len(drawn),
    )


def draw_graph(
    scores: Sequence[EntryScore], edges: Sequence[GraphEdge], anchors: Mapping[str, str], removed: Collection[str]
) -> Drawing:
    """Lay out the most suspicious entries and their neighbours by a seeded spring layout."""
    by_id = {score.entry_id for score in scores}
    sound = [edge for edge in edges if edge.a in by_id and edge.b in by_id]
    drawn = _most_telling(scores, sound, removed)
    chosen = {score.entry_id for score in drawn}
    inside = [edge for edge in sound if edge.a in chosen and edge.b in chosen]
    inside.sort(key=lambda edge: (-edge.contradiction, -edge.similarity, edge.a, edge.b))
    lines = inside[:MAX_EDGES]
    spring = nx.Graph()
    spring.add_nodes_from(sorted(chosen))
    spring.add_weighted_edges_from((edge.a, edge.b, max(edge.similarity, 0.05) ** 2) for edge in lines)
    layout = nx.spring_layout(spring, seed=LAYOUT_SEED, iterations=120, k=1.6 / math.sqrt(max(len(chosen), 1)))
    across, down = ([float(spot[axis]) for spot in layout.values()] for axis in (0, 1))
    places = dict(zip(layout, zip(_stretched(across, WIDTH), _stretched(down, HEIGHT), strict=True), strict=True))
    spots = [places[score.entry_id] for score in drawn]
    return Drawing(
        lines=tuple(_line(edge, *places[edge.a], *places[edge.b]) for edge in reversed(lines)),
        marks=_marks(drawn, spots, [round(3.5 + 5 * min(max(score.ds, 0), 1), 1) for score in drawn], anchors, removed),
        labels=_tags(drawn, spots, removed),
        marks_left_out=len(scores) - len(drawn),
        lines_left_out=len(edges) - len(lines),
    )


def _by_importance(scores: Iterable[EntryScore], removed: Collection[str]) -> list[EntryScore]:
    return sorted(scores, key=lambda score: (score.entry_id not in removed, score.rank, score.entry_id))


def _most_telling(
    scores: Sequence[EntryScore], edges: Sequence[GraphEdge], removed: Collection[str]
) -> list[EntryScore]:
    """Take the removed entries, then whoever is joined to them, then by rank."""
    ranked = _by_importance(scores, removed)
    if len(ranked) <= MAX_NODES:
        return ranked
    near = {end for edge in edges if edge.a in removed or edge.b in removed for end in (edge.a, edge.b)}
    ranked.sort(key=lambda score: (score.entry_id not in removed, score.entry_id not in near))
    return _by_importance(ranked[:MAX_NODES], removed)


def _marks(
    drawn: Sequence[EntryScore],
    spots: Sequence[tuple[float, float]],
    radii: Sequence[float],
    anchors: Mapping[str, str],
    removed: Collection[str],
) -> tuple[Mark, ...]:
    marks = []
    for score, spot, radius in zip(drawn, spots, radii, strict=True):
        kind = "removed" if score.entry_id in removed else "flagged" if score.cas_flagged else "kept"
        marks.append(Mark(*spot, radius, kind, _title(score, kind), anchors.get(score.entry_id, "")))
    return tuple(reversed(marks))  # the most suspicious are painted last, on top


def _title(score: EntryScore, kind: str) -> str:
    cmis = "not replayed" if score.cmis is None else f"{score.cmis:.3g}"
    cas = "unknown" if score.cas is None else f"{score.cas:.3g}"
    state = {"removed": "to remove", "flagged": "kept, unusually inconsistent", "kept": "kept"}[kind]
    return (
        f"{as_line(score.entry_id)}: {state}\nrank {score.rank}, score (DS) {score.ds:.3f}\n"
        f"influence (CMIS) {cmis}, inconsistency (CAS) {cas}"
    )


def _stretched(values: Sequence[float], size: float) -> list[float]:
    """Return coordinates that fill a picture but for its margin; equal ones lie in the middle."""
    low, span = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
    if span == 0:
        return [size / 2 for _ in values]
    return [round((value - low) / span * (size - 2 * _PAD) + _PAD, 1) for value in values]


def _line(edge: GraphEdge, x1: float, y1: float, x2: float, y2: float) -> Line:
    conflict = edge.contradiction >= CONTRADICTION_WEIGHT
    width = 0.6 + 1.6 * edge.contradiction if conflict else 0.4 + 0.8 * max(edge.similarity, 0)
    title = (
        f"{as_line(edge.a, 40)} and {as_line(edge.b, 40)}\n"
        f"contradiction {edge.contradiction:.2f}, similarity {edge.similarity:.2f}"
    )
    return Line(x1, y1, x2, y2, "conflict" if conflict else "near", title, round(width, 2))


class Axis(NamedTuple):
    """A scale with about five round ticks, and the pixels where it begins and ends."""

    low: float
    high: float
    step: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """Return a scale for these values and zero."""
        low = min(0.0, *values) if values else 0.0
        high = max(low + 1e-9, 0.0, *values) if any(values) else low + 1.0
        magnitude = 10.0 ** math.floor(math.log10((high - low) / 4))
        step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude * 5 >= high - low)
        return cls(math.floor(low / step) * step, math.ceil(high / step) * step, step, start, end)

    def place(self, value: float) -> float:
        """Return where a value is, in pixels."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self) -> list[tuple[float, str]]:
        """Return pixel and number of each tick."""
        values = [self.low + index * self.step for index in range(round((self.high - self.low) / self.step) + 1)]
        return [(self.place(value), _number(value)) for value in values]


def _number(value: float) -> str:
    text = f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"  # noqa: PLR2004 - from there .3g has an exponent
    return text.replace("-", "−")


def _tags(
    drawn: Sequence[EntryScore], spots: Sequence[tuple[float, float]], removed: Collection[str]
) -> tuple[Label, ...]:
    """Name removed entries in order of importance, right or left of their mark; skip one that would cover another."""
    boxes: list[tuple[float, float, float, float]] = []
    tags: list[Label] = []
    for score, (x, y) in zip(drawn, spots, strict=True):
        name = score.entry_id
        if name not in removed or len(tags) == MAX_LABELS:
            continue
        text = as_line(name, LABEL_CHARS) if len(name) <= LABEL_CHARS else as_line(name[: LABEL_CHARS - 1]) + "…"
        width = len(text) * _LETTER
        for anchor, near, left in (("start", x + 9, x + 9), ("end", x - 9, x - 9 - width)):
            right, top, bottom = left + width, y - 6, y + 6
            inside = left >= _MARGIN and right <= WIDTH - _MARGIN
            clear = all(right < b[0] or left > b[2] or bottom < b[1] or top > b[3] for b in boxes)
            if inside and clear and not any(left < mx < right and top < my < bottom for mx, my in spots):
                boxes.append((left, top, right, bottom))
                tags.append(Label(round(near, 1), round(y + 3.5, 1), text, "tag", anchor))
                break
    return tuple(tags)
