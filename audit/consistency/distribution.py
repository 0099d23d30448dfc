"""What CAS is usual in a store: mean, median and standard deviation, of all its entries or of a sample, with the error.

The sample is one without replacement, so that errors shrink to 0 as it comes to be the whole store. Mean and deviation
have the normal interval of their linear part (the deviation by the fourth moment), the median that of its order
statistics, which holds for any distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FLAG_DEVIATIONS", "SAMPLE", "CasDistribution", "Estimate", "sampled"]

SAMPLE = 500
"""Entries whose CAS tells what is usual: with ten neighbours 10,000 directed pairs. The median is then that of a share
of the store between 0.46 and 0.54, 95 times in 100."""

FLAG_DEVIATIONS = 2.0
"""Paper eq. 9."""

_NORMAL = 1.96
"""Standard errors in half of a 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number that a sample tells of a store."""

    value: float
    error: float
    """Half of its 95 % interval; 0 where the sample is the whole store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CasDistribution:
    """Which inconsistency (CAS, eq. 8) is usual in a store."""

    sampled: int
    """Entries that tell it."""

    mean: Estimate
    median: Estimate
    deviation: Estimate
    """Standard deviation, population form (eq. 9)."""

    @classmethod
    def of(cls, cas: NDArray[np.float64], entries: int) -> CasDistribution:
        """Estimate from the CAS of some entries, shape (s,) with s at least 1, of a store of so many."""
        size, values = len(cas), np.sort(cas)
        left_out = math.sqrt((entries - size) / max(entries - 1, 1))
        mean = float(values[0] if values[0] == values[-1] else values.mean())  # a mean of equal numbers may round
        squares = (values - mean) ** 2
        deviation, middle = math.sqrt(squares.mean()), float(np.median(values))
        half = _NORMAL * left_out / math.sqrt(size)
        reach = half * size / 2
        low, high = math.floor((size - 1) / 2 - reach), math.ceil((size - 1) / 2 + reach)
        wide = max(middle - values[max(low, 0)], values[min(high, size - 1)] - middle) if left_out else 0.0
        return cls(
            sampled=size,
            mean=Estimate(value=mean, error=half * deviation),
            median=Estimate(value=middle, error=float(wide)),
            deviation=Estimate(value=deviation, error=half * float(squares.std()) / (2 * deviation or 1.0)),
        )

    @property
    def unusual(self) -> float:
        """CAS above which an entry is flagged (eq. 9)."""
        return self.mean.value + FLAG_DEVIATIONS * self.deviation.value


def sampled(entries: int, seed: int, most: int = SAMPLE) -> NDArray[np.int64]:
    """Draw at most so many entries of a store, by their place in the log, sorted.

    An entry that is appended takes the place of another one at most: a night pays for what is new.
    """
    keys = np.random.default_rng(seed).random(entries)
    return np.sort(np.argsort(keys, kind="stable")[:most])
