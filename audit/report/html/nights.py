"""Nights side by side, as one page: what is new, known and back, a table of tenants by nights, and three plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_audit.report.drawing import Axis
from memory_audit.report.html.environment import MAX_ROWS, render
from memory_audit.report.nights import nights_headline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.report.nights import Cell, Nights

__all__ = ["render_nights"]

MAX_NIGHTS = 31
"""Columns of the table, the last nights."""

MAX_TENANTS = 1_000

WIDTH, HEIGHT = 360.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 348.0, 14.0, 168.0


class Curve(NamedTuple):
    """One quantity over the nights."""

    kind: str
    """CSS class."""

    name: str
    points: Sequence[tuple[float, float, str]]
    """Pixels, and what a mark says."""


class Plot(NamedTuple):
    """Curves over one axis."""

    title: str
    curves: Sequence[Curve]
    ticks: Sequence[tuple[float, str]]


def render_nights(nights: Nights) -> str:
    """Return the page. The same runs give the same bytes."""
    tone, sentence = nights_headline(nights)
    shown = [
        (name, cells)
        for name, cells in nights.cells.items()
        if any(cell is not None and _tells(cell) for cell in cells)
    ]
    first, totals = max(len(nights.totals) - MAX_NIGHTS, 0), nights.totals
    counts = [total.counts for total in totals]
    plots = [
        _plot("Events that do harm on replay", nights, {
            "bad": ("with the whole memory", [count.harmful_before for count in counts]),
            "good": ("without what is named", [count.harmful_after for count in counts]),
        }),
        _plot("Memories", nights, {
            "bad": ("named", [count.removed + count.quarantined for count in counts]),
            "good": ("taken out", [total.taken for total in totals]),
        }),
        _plot("Replays", nights, {"cost": ("asked", [total.counters.get("replays", 0) for total in totals])}),
    ]  # fmt: skip
    return render("nights.html.j2", {
        "nights": nights, "tone": tone, "headline": sentence, "first": first, "plots": plots,
        "rows_shown": [(name, cells[first:]) for name, cells in shown[:MAX_TENANTS]],
        "left_out": len(shown) - MAX_TENANTS, "quiet": len(nights.cells) - len(shown), "last": nights.last[:MAX_ROWS],
    })  # fmt: skip


def _tells(cell: Cell) -> bool:
    return bool(cell.named or cell.back or cell.concern.needs_person)


def _plot(title: str, nights: Nights, of: dict[str, tuple[str, list[int]]]) -> Plot:
    axis = Axis.over([float(value) for _, values in of.values() for value in values], _BOTTOM, _TOP)
    step = (_RIGHT - _LEFT) / max(len(nights.totals) - 1, 1)
    curves = [
        Curve(kind, name, [
            (round(_LEFT + number * step, 1), axis.place(value), f"{total.name}: {value:,} {name}")
            for number, (value, total) in enumerate(zip(values, nights.totals, strict=True))
        ])
        for kind, (name, values) in of.items()
    ]  # fmt: skip
    return Plot(title, curves, axis.ticks())
