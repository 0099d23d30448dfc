"""Error bars: Wilson intervals for rates, percentile bootstrap over runs for scores."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bootstrap", "bootstrap_ratio", "wilson"]

Z_95 = 1.959964
"""Two-sided 95 % quantile of the standard normal."""


def wilson(successes: float, trials: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a rate; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    denominator = 1 + Z_95**2 / trials
    centre = (rate + Z_95**2 / (2 * trials)) / denominator
    half = Z_95 * math.sqrt(rate * (1 - rate) / trials + Z_95**2 / (4 * trials**2)) / denominator
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap(values: Sequence[float], *, draws: int = 2_000, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean; a single value gives itself twice.

    Raises:
        ValueError: no values.
    """
    return bootstrap_ratio([(value, 1.0) for value in values], draws=draws, seed=seed)


def bootstrap_ratio(pairs: Sequence[tuple[float, float]], *, draws: int = 2_000, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the ratio of two sums over runs.

    Args:
        pairs: Of each run, what is summed above and below the line.
        draws: How often runs are drawn anew.
        seed: Of the draws.

    Raises:
        ValueError: no runs, or draws in which nothing is below the line.
    """
    if not pairs:
        raise ValueError("no values to bootstrap")
    rng = random.Random(seed)
    ratios = []
    for _ in range(draws):
        above, below = map(sum, zip(*rng.choices(pairs, k=len(pairs)), strict=True))
        if not below:
            raise ValueError("a draw of the runs has nothing below the line")
        ratios.append(above / below)
    ratios.sort()
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1]
