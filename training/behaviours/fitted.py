"""A reader of behaviours as it is fitted: on standardised states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.models.activations.behaviour_reader import ReaderWeights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import BehaviourCurve
    from memory_audit.models.activations.behaviour_networks import ComparingNetworks, HarmNetworks

__all__ = ["Fitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A reader that takes standardised states."""

    mean: NDArray[np.float32]
    """Of states, shape (hidden,)."""

    spread: NDArray[np.float32]
    """Likewise."""

    projection: NDArray[np.float32]
    """Shape (dimensions, hidden)."""

    harm: HarmNetworks
    comparing: ComparingNetworks

    def weights(self, curve: BehaviourCurve, updates: Mapping[str, NDArray[np.float32]] | None = None) -> ReaderWeights:
        """Return the reader that takes states as they are, with updates of the backbone if there are any."""
        directions, offset = self._unscaled(self.projection, np.zeros(len(self.projection), np.float32))
        harm_units, harm_bias = self._unscaled(self.harm.units, self.harm.units_bias)
        units, units_bias = self._unscaled(self.comparing.units, self.comparing.units_bias)
        matched, matched_bias = self._unscaled(self.comparing.matched, self.comparing.matched_bias)
        return ReaderWeights(
            projection=directions, offset=offset, harm=replace(self.harm, units=harm_units, units_bias=harm_bias),
            comparing=replace(
                self.comparing, units=units, units_bias=units_bias, matched=matched, matched_bias=matched_bias
            ),
            curve=curve, updates=updates or {},
        )  # fmt: skip

    def _unscaled(
        self, weights: NDArray[np.float32], bias: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        plain = weights / self.spread
        return np.asarray(plain, np.float32), np.asarray(bias - plain @ self.mean, np.float32)
