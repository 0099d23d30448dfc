"""Geometry of the report's two drawings: influence (CMIS) against inconsistency (CAS), and the memory graph.

Positions only, in pixels of a fixed viewBox: the template writes the SVG, so that every text passes the same escaping.
Both are bounded, and say how many entries they leave out. The same result gives the same drawing (seeded layout).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx

from memory_audit.consistency.graph import CONTRADICTION_WEIGHT, FLAG_DEVIATIONS
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from memory_audit.result import EntryScore, GraphEdge

__all__ = ["MAX_NODES", "MAX_POINTS", "GraphDrawing", "Scatter", "draw_graph", "draw_scatter"]

MAX_POINTS = 1_500
"""Points in a scatter; more make the page slow and no clearer."""

MAX_NODES = 300
"""Nodes in a drawn graph; above this a force layout is a hairball."""

MAX_EDGES = 1_500
WIDTH, HEIGHT = 560.0, 400.0
LAYOUT_SEED = 7
LABEL_CHARS = 18
MAX_LABELS = 10

_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 18.0, 18.0, 64.0
"""Margins of the scatter: axis names and ticks, and the lane of entries that no replay left out."""

_LANE = 30.0
_LETTER = 6.2
"""Width of a label's letter in pixels, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The name of a mark, placed where it covers no other name."""

    x: float
    y: float
    text: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One edge of the graph."""

    x1: float
    y1: float
    x2: float
    y2: float
    width: float
    kind: str
    """CSS class: `conflict` or `near`."""

    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One number on an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Influence, CMIS (up), against inconsistency, CAS (right)."""

    marks: tuple[Mark, ...]
    labels: tuple[Label, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    zero_y: float
    """Height of CMIS = 0."""

    lane_y: float | None
    """Height of the lane of entries with no CMIS; None where every entry has one."""

    threshold_x: float | None
    """Where CAS = mean + 2 standard deviations (eq. 9), if inside the picture."""

    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDrawing:
    """The memory consistency graph."""

    marks: tuple[Mark, ...]
    labels: tuple[Label, ...]
    lines: tuple[Line, ...]
    nodes_left_out: int
    edges_left_out: int


def draw_scatter(scores: Sequence[EntryScore], anchors: dict[str, str], removed: Collection[str]) -> Scatter:
    """Place the entries that have a CAS; removed ones first where there are too many.

    Args:
        scores: Of one tenant, finite.
        anchors: Entry id to the `href` of its card.
        removed: Entry ids that go.
    """
    placed = [score for score in _by_importance(scores, removed) if score.cas is not None]
    drawn = placed[:MAX_POINTS]
    cas = [score.cas or 0.0 for score in drawn]
    known = [score.cmis for score in drawn if score.cmis is not None]
    x_low, x_high, x_step = _axis([0.0, *cas])
    y_low, y_high, y_step = _axis([0.0, *known])
    has_lane = len(known) < len(drawn)
    floor = HEIGHT - _BOTTOM - (_LANE if has_lane else 0.0)

    def at_x(value: float) -> float:
        return _LEFT + (value - x_low) / (x_high - x_low) * (WIDTH - _LEFT - _RIGHT)

    def at_y(value: float | None) -> float:
        return floor + _LANE if value is None else floor - (value - y_low) / (y_high - y_low) * (floor - _TOP)

    marks = tuple(
        Mark(
            x=round(at_x(score.cas or 0.0), 1),
            y=round(at_y(score.cmis), 1),
            radius=6.0 if score.entry_id in removed else 4.0,
            kind=_kind(score, removed),
            title=_title(score, removed),
            href=anchors.get(score.entry_id, ""),
        )
        for score in reversed(drawn)  # the most suspicious are painted last, on top
    )
    names = [(score.entry_id, at_x(score.cas or 0.0), at_y(score.cmis)) for score in drawn if score.entry_id in removed]
    cut = statistics.fmean(cas) + FLAG_DEVIATIONS * statistics.pstdev(cas) if cas else 0.0
    return Scatter(
        marks=marks,
        labels=_labels(names, [(mark.x, mark.y) for mark in marks]),
        x_ticks=_ticks(x_low, x_high, x_step, at_x),
        y_ticks=_ticks(y_low, y_high, y_step, at_y),
        zero_y=round(at_y(0.0), 1),
        lane_y=round(at_y(None), 1) if has_lane else None,
        threshold_x=round(at_x(cut), 1) if cas and min(cas) < max(cas) and cut <= x_high else None,
        left_out=len(scores) - len(drawn),
    )


def draw_graph(
    scores: Sequence[EntryScore], edges: Sequence[GraphEdge], anchors: dict[str, str], removed: Collection[str]
) -> GraphDrawing:
    """Lay out the most suspicious entries and their neighbours by a seeded spring layout."""
    by_id = {score.entry_id: score for score in scores}
    sound = [edge for edge in edges if edge.a in by_id and edge.b in by_id]
    chosen = _choose_nodes(scores, sound, removed)
    inside = [edge for edge in sound if edge.a in chosen and edge.b in chosen]
    inside.sort(key=lambda edge: (-edge.contradiction, -edge.similarity, edge.a, edge.b))
    lines = inside[:MAX_EDGES]
    spring = nx.Graph()
    spring.add_nodes_from(sorted(chosen))
    spring.add_weighted_edges_from((edge.a, edge.b, max(edge.similarity, 0.05) ** 2) for edge in lines)
    spots = _fit(nx.spring_layout(spring, seed=LAYOUT_SEED, iterations=120, k=1.6 / math.sqrt(max(len(chosen), 1))))
    drawn = [score for score in _by_importance(scores, removed) if score.entry_id in chosen]
    marks = tuple(
        Mark(
            x=spots[score.entry_id][0],
            y=spots[score.entry_id][1],
            radius=round(3.5 + 5 * min(max(score.ds, 0), 1), 1),
            kind=_kind(score, removed),
            title=_title(score, removed),
            href=anchors.get(score.entry_id, ""),
        )
        for score in reversed(drawn)
    )
    return GraphDrawing(
        marks=marks,
        labels=_labels(
            [(score.entry_id, *spots[score.entry_id]) for score in drawn if score.entry_id in removed],
            [(mark.x, mark.y) for mark in marks],
        ),
        lines=tuple(_line(edge, spots) for edge in reversed(lines)),
        nodes_left_out=len(scores) - len(drawn),
        edges_left_out=len(edges) - len(lines),
    )


def _by_importance(scores: Iterable[EntryScore], removed: Collection[str]) -> list[EntryScore]:
    return sorted(scores, key=lambda score: (score.entry_id not in removed, score.rank, score.entry_id))


def _choose_nodes(scores: Sequence[EntryScore], edges: Sequence[GraphEdge], removed: Collection[str]) -> set[str]:
    """Take the removed entries, then whoever is joined to them, then by rank."""
    ranked = _by_importance(scores, removed)
    if len(ranked) <= MAX_NODES:
        return {score.entry_id for score in ranked}
    near = {end for edge in edges if edge.a in removed or edge.b in removed for end in (edge.a, edge.b)}
    ranked.sort(key=lambda score: (score.entry_id not in removed, score.entry_id not in near))
    return {score.entry_id for score in ranked[:MAX_NODES]}


def _kind(score: EntryScore, removed: Collection[str]) -> str:
    return "removed" if score.entry_id in removed else "flagged" if score.cas_flagged else "kept"


def _title(score: EntryScore, removed: Collection[str]) -> str:
    cmis = "not replayed" if score.cmis is None else f"{score.cmis:.3g}"
    cas = "unknown" if score.cas is None else f"{score.cas:.3g}"
    kept = "kept, unusually inconsistent" if score.cas_flagged else "kept"
    state = "to remove" if score.entry_id in removed else kept
    return (
        f"{as_line(score.entry_id)}: {state}\nrank {score.rank}, score (DS) {score.ds:.3f}\n"
        f"influence (CMIS) {cmis}, inconsistency (CAS) {cas}"
    )


def _line(edge: GraphEdge, spots: dict[str, tuple[float, float]]) -> Line:
    conflict = edge.contradiction >= CONTRADICTION_WEIGHT
    (x1, y1), (x2, y2) = spots[edge.a], spots[edge.b]
    return Line(
        x1=x1, y1=y1, x2=x2, y2=y2,
        width=round(0.6 + 1.6 * edge.contradiction if conflict else 0.4 + 0.8 * max(edge.similarity, 0), 2),
        kind="conflict" if conflict else "near",
        title=f"{as_line(edge.a, 40)} and {as_line(edge.b, 40)}\n"
        f"contradiction {edge.contradiction:.2f}, similarity {edge.similarity:.2f}",
    )  # fmt: skip


def _fit(layout: dict[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Stretch the layout into the picture."""
    pad = 26.0
    spans = []
    for axis, size in ((0, WIDTH), (1, HEIGHT)):
        values = [float(spot[axis]) for spot in layout.values()] or [0.0]
        low, width = min(values), max(values) - min(values)
        spans.append((low, (size - 2 * pad) / width if width > 0 else 0.0, pad if width > 0 else size / 2))
    (x_low, x_scale, x_pad), (y_low, y_scale, y_pad) = spans
    return {
        name: (
            round((float(spot[0]) - x_low) * x_scale + x_pad, 1),
            round((float(spot[1]) - y_low) * y_scale + y_pad, 1),
        )
        for name, spot in layout.items()
    }


def _axis(values: Sequence[float]) -> tuple[float, float, float]:
    """Return low, high and step of an axis with about five round ticks."""
    low, high = min(values), max(values)
    if high / 2 - low / 2 <= 0:
        high = low + 1.0
    span = max(high / 2 - low / 2, 1e-300) * 2 if high / 2 - low / 2 < 1e300 else 1e300  # noqa: PLR2004
    magnitude = 10.0 ** math.floor(math.log10(span / 4))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude * 5 >= span)
    return math.floor(low / step) * step, math.ceil(high / step) * step, step


def _ticks(low: float, high: float, step: float, place: Callable[[float], float]) -> tuple[Tick, ...]:
    count = round((high - low) / step)
    return tuple(
        Tick(at=round(place(low + index * step), 1), text=f"{low + index * step:.3g}".replace("-", "−"))
        for index in range(count + 1)
    )


def _labels(names: Sequence[tuple[str, float, float]], marks: Sequence[tuple[float, float]]) -> tuple[Label, ...]:
    """Name marks in order of importance, right or left of them; skip a name that would cover another."""
    boxes: list[tuple[float, float, float, float]] = []
    labels: list[Label] = []
    for name, x, y in names:
        text = as_line(name, LABEL_CHARS) if len(name) <= LABEL_CHARS else as_line(name[: LABEL_CHARS - 1]) + "…"
        width = len(text) * _LETTER
        for anchor, left in (("start", x + 9), ("end", x - 9 - width)):
            box = (left, y - 6, left + width, y + 6)
            inside = box[0] >= 0 and box[2] <= WIDTH
            clear = all(box[2] < b[0] or box[0] > b[2] or box[3] < b[1] or box[1] > b[3] for b in boxes)
            free = not any(box[0] < mx < box[2] and box[1] < my < box[3] for mx, my in marks)
            if inside and clear and free:
                boxes.append(box)
                labels.append(
                    Label(
                        x=round(x + 9 if anchor == "start" else x - 9, 1), y=round(y + 3.5, 1), text=text, anchor=anchor
                    )
                )
                break
        if len(labels) == MAX_LABELS:
            break
    return tuple(labels)
