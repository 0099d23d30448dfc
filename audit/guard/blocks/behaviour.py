"""The behaviour that a text teaches, read from a model's activations.

It is the same in other words, and another when the text is put right.

A semantic key says what a text is about, and a safe answer is about the same as the harmful one it replaces. What is
read here says other things instead: a direction, near that of texts that teach the same behaviour; how harmful
what it teaches is; and what its passages say when they are held against a removed behaviour's direction. A curve,
fitted on texts of no benchmark, turns the last two into the log-odds that a write restates a removed behaviour. No
taxonomy is needed, no question is asked, and so nothing in a text can answer one.

The reader itself is `memory_audit.models.activations.behaviour_cascade`; here is what a guard needs of it, without its
libraries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from memory_audit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["BehaviourCurve", "BehaviourFeatures", "BehaviourReader", "checked_features"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourFeatures:
    """What one text teaches."""

    direction: NDArray[np.float32]
    """Shape (dimensions,); of `BehaviourReader.taught` it has unit norm, and a tombstone keeps it."""

    harm_nats: float
    """Log-odds that it is harmful, whatever was removed."""

    passages: NDArray[np.float32]
    """Shape (passages, features): what its reader holds against behaviours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourCurve:
    """From harm, and from what a comparison says, to the log-odds that a write restates a removed behaviour."""

    restated_slope: float
    """Nats for a nat of what a comparison says."""

    harm_slope: float
    """Nats for a nat of harm."""

    bias: float
    """Nats where both are 0."""

    threshold_nats: float
    """Log-odds from which a write is refused, by calibration."""

    doubt_nats: float = -math.inf
    """Log-odds from which a reader of hazards is worth its cost: a write below it is safe enough, by calibration."""

    near_nats: float = math.inf
    """Log-odds from which a write that is near the behaviour's key is refused where nobody reads hazards, likewise."""

    hazard_slope: float = 0.0
    """Nats for a nat of hazard that their reader finds (`HazardSignature.hazard_nats`)."""

    fused_nats: float = math.inf
    """Log-odds with that from which a write in doubt is refused, by calibration; infinite: labels alone decide."""

    least_nats: float = -math.inf
    """Log-odds below which a reader tells no more than that it is less: no threshold can lie there."""

    def log_odds(self, harm_nats: float, restated_nats: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-odds in nats, by behaviour: shape (behaviours,), as `restated_nats` has."""
        return np.asarray(self.restated_slope * restated_nats + (self.harm_slope * harm_nats + self.bias), np.float32)


class BehaviourReader(Protocol):
    """Reads behaviours (`memory_audit.models.activations.behaviour_cascade`). Safe for many threads."""

    model_id: str
    """Behaviours of different ones cannot be compared."""

    curve: BehaviourCurve

    def read(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """Read texts that may restate a behaviour, in the order given.

        Raises:
            ModelError: the model failed.
        """
        ...

    def taught(self, texts: Sequence[str]) -> tuple[BehaviourFeatures, ...]:
        """Read texts whose directions tombstones keep, likewise: `log_odds` holds what `read` returns against these.

        Raises:
            ModelError: the model failed.
        """
        ...

    def log_odds(self, reading: BehaviourFeatures, behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-odds in nats that a text restates each of some behaviours, shape (behaviours,).

        Args:
            reading: Of the text.
            behaviours: Directions of removed texts, shape (behaviours, dimensions).

        Raises:
            ModelError: the model failed.
        """
        ...


def checked_features(
    features: Sequence[BehaviourFeatures], texts: int, dimensions: int
) -> tuple[BehaviourFeatures, ...]:
    """Return readings that are what was asked for.

    Args:
        features: From a `BehaviourReader`.
        texts: How many were asked for.
        dimensions: Of the tombstones' behaviours; 0 where there are none.

    Raises:
        ModelError: another number of them, another shape, or numbers that are not finite.
    """
    if len(features) != texts:
        raise ModelError(f"{len(features)} sets of features for {texts} texts")
    for reading in features:
        shape, passages = reading.direction.shape, reading.passages.shape
        if len(shape) != 1 or not shape[0] or dimensions not in (0, shape[0]):
            raise ModelError(
                f"a set of features has a direction of shape {shape}, expected {dimensions or 'some'} dimensions"
            )
        if len(passages) != 2 or not passages[0]:  # noqa: PLR2004
            raise ModelError(f"a set of features has passages of shape {passages}")
        if not all(np.isfinite(part).all() for part in (reading.direction, reading.harm_nats, reading.passages)):
            raise ModelError("a set of features holds numbers that are not finite")
    return tuple(features)
