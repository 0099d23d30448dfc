"""The backfill figure: results per query where poison is filtered at query time, and where it never got in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")  # no display here, and figures must be the same everywhere
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["draw_backfill"]

COLOURS = ("#c0392b", "#8e44ad", "#d35400", "#7f8c8d")


def draw_backfill(path: Path, curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write an SVG.

    Args:
        path: Where to.
        curves: Embedder to the rows of `benchmarks.guard.hst.conditions.backfill_rows`.
    """
    mpl.rcParams["svg.hashsalt"] = "hst"  # equal data, equal file
    figure, axis = plt.subplots(figsize=(5.6, 3.6))
    for colour, (name, rows) in zip(COLOURS, curves.items(), strict=False):
        depths = [row["delta"] for row in rows]
        axis.plot(
            depths, [row["retrieval_time"] for row in rows], color=colour, marker="o", markersize=3,
            label=f"retrieval-time fuzzy, {name}",
        )  # fmt: skip
    level = min((row["commit_time"] for rows in curves.values() for row in rows), default=0.0)
    axis.axhline(level, color="#1b7f5c", linestyle="--", label="commit-time (lowest embedder)")
    axis.set_xlabel("backfill depth δ (candidates beyond k = 3)")
    axis.set_ylabel("results per query, of 3")
    axis.set_ylim(0, 3.15)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
