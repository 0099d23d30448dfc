"""A cascade of two readers of behaviours: the first reads every write, the second those that the first leaves open.

What a tombstone keeps is the directions of both, one behind the other. Where the first reader says of a behaviour that
a write may restate it, the second reads the write too, once, and a logistic regression on what both say decides
(`JointCurve`). A behaviour that the first rules out is not looked at again: most writes are about other things, and
cost one reading of the packaged 0.5B. The second reads the packaged 1.5B, at four times the cost. They were fitted
apart, and so are wrong about other texts.

Cascades of classifiers: Viola and Jones (2001); of language models by confidence: Chen et al. 2023 (FrugalGPT).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from memory_audit.errors import ModelError, UsageError
from memory_audit.guard.blocks.behaviour import BehaviourCurve, BehaviourFeatures, checked_features
from memory_audit.models.activations.behaviour_reader import SECOND, PackagedBehaviourReader
from memory_audit.models.calibration import read_calibration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["CascadedBehaviourReader", "JointCurve", "OneReader", "cascade_calibration", "packaged_cascade"]

CALIBRATION_FILE = "act_cascade.json"
"""Fitted by `training.behaviour_cascade` and `training.doubt_calibration`."""

_HALF_NORM = np.float32(0.5**0.5)
"""Of each half of a direction, so that the whole has unit norm."""


class OneReader(Protocol):
    """A reader of behaviours that tells what it compares by itself (`behaviour_reader.PackagedBehaviourReader`)."""

    model_id: str
    dimensions: int
    """Of its directions."""

    def read(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """See `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        ...

    def restated_nats(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what the comparison alone says, in nats: shape (behaviours,)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JointCurve:
    """From what both readers say to the log-odds that a write restates a removed behaviour (stacking, Wolpert 1992)."""

    restated_slopes: tuple[float, float]
    """Nats for a nat of what the comparisons say: of the first reader, of the second."""

    harm_slopes: tuple[float, float]
    """Nats for a nat of harm, likewise."""

    bias: float
    open_nats: float
    """Log-odds of the first reader alone, by its own curve, from which it defers to both."""

    def log_odds(
        self, harm_nats: tuple[float, float], restated_nats: tuple[NDArray[np.float32], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return the log-odds in nats, by behaviour, of what each reader says: shape (behaviours,)."""
        compared = sum(slope * nats for slope, nats in zip(self.restated_slopes, restated_nats, strict=True))
        harm = sum(slope * nats for slope, nats in zip(self.harm_slopes, harm_nats, strict=True))
        return np.asarray(compared + (harm + self.bias), np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenFeatures(BehaviourFeatures):
    """The first reader's reading, and how to come by the second's."""

    second: Callable[[], BehaviourFeatures]
    """Reads the text when it is first called."""


def cascade_calibration() -> tuple[JointCurve, BehaviourCurve]:
    """Return how the packaged readers are weighed together, and their thresholds on log-odds of both."""
    joint, curve = read_calibration(CALIBRATION_FILE, joint=JointCurve, curve=BehaviourCurve)
    return joint, curve


def packaged_cascade() -> CascadedBehaviourReader:
    """Return the packaged readers.

    Raises:
        UsageError: a packaged backbone, or a file of weights, is not there.
    """
    first, second = PackagedBehaviourReader(), PackagedBehaviourReader(SECOND)
    joint, curve = cascade_calibration()
    return CascadedBehaviourReader(first, second, alone=first.curve, joint=joint, curve=curve)


class CascadedBehaviourReader:
    """Implements `memory_audit.guard.blocks.behaviour.BehaviourReader`.

    Args:
        first: Reads every text.
        second: Reads what tombstones are made of, and of writes what the first leaves open.
        alone: The first reader's curve.
        joint: Weighs both.
        curve: Thresholds on the log-odds that `log_odds` returns; none can lie below where both are asked.

    Raises:
        UsageError: a write that the second reader has not seen could be in doubt, by thresholds that are for both.
    """

    def __init__(
        self, first: OneReader, second: OneReader, *, alone: BehaviourCurve, joint: JointCurve, curve: BehaviourCurve
    ) -> None:
        if joint.open_nats > curve.doubt_nats > -math.inf:
            raise UsageError(f"open from {joint.open_nats} nats is above doubt, from {curve.doubt_nats}")
        self._first, self._second, self._alone, self._joint = first, second, alone, joint
        self.curve = replace(curve, least_nats=joint.open_nats)
        self.model_id = f"{first.model_id}+{second.model_id}"

    def read(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """Read writes by the first reader; the second's part of the directions is blank."""
        blank = np.zeros(self._second.dimensions, np.float32)
        return tuple(
            _OpenFeatures(
                direction=np.concatenate([reading.direction, blank]), harm_nats=reading.harm_nats,
                passages=reading.passages, second=functools.cache(functools.partial(self._one, text)),
            )
            for text, reading in zip(texts, self._first.read(texts), strict=True)
        )  # fmt: skip

    def taught(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """Read removed texts by both; see `memory_audit.guard.blocks.behaviour.BehaviourReader`."""
        first, second = (
            checked_features(reader.read(texts), len(texts), reader.dimensions)
            for reader in (self._first, self._second)
        )
        return tuple(
            BehaviourFeatures(
                direction=np.concatenate([one.direction, other.direction]) * _HALF_NORM,
                harm_nats=one.harm_nats, passages=one.passages,
            )
            for one, other in zip(first, second, strict=True)
        )  # fmt: skip

    def log_odds(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `memory_audit.guard.blocks.behaviour.BehaviourReader`.

        Raises:
            ModelError: the reading or the behaviours are not this reader's, or the second reader failed.
        """
        if (
            not isinstance(reading, _OpenFeatures)
            or behaviours.shape[1] != self._first.dimensions + self._second.dimensions
        ):
            raise ModelError(
                f"behaviours of shape {behaviours.shape} and a {type(reading).__name__} are not of this reader"
            )
        near, far = np.split(behaviours, [self._first.dimensions], axis=1)
        restated = self._first.restated_nats(reading, _unit(near))
        odds = self._alone.log_odds(reading.harm_nats, restated)
        if (left := odds >= self._joint.open_nats).any():
            second = reading.second()
            odds[left] = self._joint.log_odds(
                (reading.harm_nats, second.harm_nats),
                (restated[left], self._second.restated_nats(second, _unit(far[left]))),
            )
        return odds

    def _one(self, text: str) -> BehaviourFeatures:
        return checked_features(self._second.read([text]), 1, self._second.dimensions)[0]


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale to unit norm: the halves of a direction are kept together, as one vector of unit norm."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6), np.float32)
