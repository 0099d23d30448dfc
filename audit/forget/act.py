"""The act that a text teaches, read from a model's activations: the same in other words, another when it is put right.

A semantic key says what a text is about, and a safe answer is about the same as the harmful one it replaces. An act
reading says two things instead: a direction, near that of texts that teach the same act, and how harmful what it
teaches is. A curve, fitted on texts of no benchmark, turns both into the log-odds that a write restates a removed act.
No taxonomy is needed, no question is asked, and so nothing in a text can answer one.

The reader itself is `models.act_reader`; here is what a guard needs of it, without its libraries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from audit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["ActCurve", "ActReader", "ActReading", "checked_readings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActReading:
    """What one text teaches; its first window is the whole text."""

    directions: NDArray[np.float32]
    """Shape (windows, dimensions), rows of unit norm."""

    harm_nats: NDArray[np.float32]
    """Shape (windows,): log-odds that what a window teaches is harmful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActCurve:
    """From similarity and harm to the log-odds that a write restates a removed act."""

    similarity_slope: float
    """Nats for a cosine of 1."""

    harm_slope: float
    bias: float
    threshold_nats: float
    """Log-odds from which a write is refused, by calibration."""

    doubt_nats: float = -math.inf
    """Log-odds from which a second reader is worth its cost: below it a write is safe enough, by calibration."""

    def log_odds(self, reading: ActReading, similarity: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-odds in nats by tombstone, of the window that speaks most: shape (tombstones,).

        Args:
            reading: Of a write.
            similarity: Of its windows with the tombstones' acts, shape (windows, tombstones).
        """
        odds = self.similarity_slope * similarity + (self.harm_slope * reading.harm_nats + self.bias)[:, None]
        return np.asarray(odds.max(axis=0), np.float32)


class ActReader(Protocol):
    """Reads acts (`models.act_reader`). Safe for many threads."""

    model_id: str
    """Acts of different ones cannot be compared."""

    curve: ActCurve

    def read(self, texts: Sequence[str]) -> tuple[ActReading, ...]:
        """Read texts, in the order given.

        Raises:
            ModelError: the model failed.
        """
        ...


def checked_readings(readings: Sequence[ActReading], texts: int, dimensions: int) -> tuple[ActReading, ...]:
    """Return readings that are what was asked for.

    Args:
        readings: From an `ActReader`.
        texts: How many were asked for.
        dimensions: Of the tombstones' acts; 0 where there are none.

    Raises:
        ModelError: another number of them, another shape, or numbers that are not finite.
    """
    if len(readings) != texts:
        raise ModelError(f"{len(readings)} act readings for {texts} texts")
    for reading in readings:
        windows = len(reading.harm_nats)
        width = dimensions or reading.directions.shape[-1]
        if windows == 0 or reading.directions.shape != (windows, width):
            raise ModelError(
                f"an act reading has shape {reading.directions.shape} for {windows} windows of {width} dimensions"
            )
        if not (np.isfinite(reading.directions).all() and np.isfinite(reading.harm_nats).all()):
            raise ModelError("an act reading holds numbers that are not finite")
    return tuple(readings)
