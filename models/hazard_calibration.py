"""Thresholds of hazard labels for one model: its yes is biased, and by another amount for each question.

Calibrate on texts that are no benchmark's. `CALIBRATION` holds some written for this project: memories of agents that
keep books, run laboratories, edit films and tend gardens, with the labels they have.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from audit.forget.hazard import Taxonomy

__all__ = ["thresholds"]


def thresholds(examples: Sequence[tuple[Mapping[str, float], frozenset[str]]], taxonomy: Taxonomy) -> dict[str, float]:
    """Choose each label's threshold on labelled examples: the midpoint that tells best, nearest to the default.

    Args:
        examples: Margins of a text, and the labels that it has in truth. Never texts of a benchmark.
        taxonomy: The labels.

    Returns:
        Label to threshold in nats, for the labels that have both positive and negative examples.
    """
    found: dict[str, float] = {}
    for label in taxonomy.labels:
        rows = sorted((margins[label.name], label.name in truth) for margins, truth in examples)
        if len({held for _, held in rows}) < 2:  # noqa: PLR2004 - both kinds are needed
            continue
        values = [margin for margin, _ in rows]
        cuts = [values[0] - 1.0, *((a + b) / 2 for a, b in itertools.pairwise(values)), values[-1] + 1.0]

        def worth(
            cut: float, rows: Sequence[tuple[float, bool]] = tuple(rows), p: int = positives, n: int = negatives
        ) -> float:
            right = sum(held for margin, held in rows if margin > cut) / p
            return right + sum(not held for margin, held in rows if margin <= cut) / n

        default = label.threshold_nats
        found[label.name] = round(max(cuts, key=lambda cut: (worth(cut), -abs(cut - default))), 3)
    return found
