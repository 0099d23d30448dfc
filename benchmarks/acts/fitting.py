"""The fit of a reader of acts, whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.acts.comparing_fit import comparing_networks
from benchmarks.acts.contrast import contrasted
from benchmarks.acts.corpus import EACH, HARMFUL
from benchmarks.acts.harm_fit import harm_networks
from benchmarks.acts.passages import Passages
from models.act_reader import ActWeights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from audit.forget.act import ActCurve
    from benchmarks.acts.corpus import Note, Scenario
    from benchmarks.acts.settings import Fit
    from models.act_networks import ComparingNetworks, HarmNetworks

__all__ = ["Fitted", "fit_reader"]


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

    def weights(self, curve: ActCurve, updates: Mapping[str, NDArray[np.float32]] | None = None) -> ActWeights:
        """Return the reader that takes states as they are, with updates of the backbone if there are any."""
        directions, offset = self._unscaled(self.projection, np.zeros(len(self.projection), np.float32))
        harm_units, harm_bias = self._unscaled(self.harm.units, self.harm.units_bias)
        units, units_bias = self._unscaled(self.comparing.units, self.comparing.units_bias)
        matched, matched_bias = self._unscaled(self.comparing.matched, self.comparing.matched_bias)
        return ActWeights(
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


def fit_reader(
    found: Sequence[Scenario],
    states: Sequence[Sequence[NDArray[np.float32]]],
    noted: Sequence[tuple[Note, NDArray[np.float32]]],
    fit: Fit,
) -> Fitted:
    """Fit the projection, and both kinds of networks.

    Args:
        found: The scenarios.
        states: Of each scenario's texts, `passage_means` each.
        noted: Notes, likewise; the networks learn from them too.
        fit: How.
    """
    acts = np.stack([np.stack([text[0] for text in texts]) for texts in states])
    flat = acts.reshape(-1, acts.shape[-1])
    mean, spread = flat.mean(0), flat.std(0) + 1e-3
    standard = np.asarray((acts - mean) / spread, np.float32)
    projection = contrasted(standard, fit)
    every = [*(text for texts in states for text in texts), *(text for _, text in noted)]
    passages = Passages([(text - mean) / spread for text in every])
    shown = [(number * EACH + place, place < HARMFUL)
             for number, item in enumerate(found) for place in (0, *item.writes)]  # fmt: skip
    notes = np.arange(len(every) - len(noted), len(every))
    shown += list(zip(notes.tolist(), (note.bad for note, _ in noted), strict=True)) * fit.note_weight
    numbers, harmful = (np.array(column) for column in zip(*shown, strict=True))
    harm = harm_networks(passages, numbers, harmful, fit, len(mean))
    comparing = comparing_networks(found, standard, passages, notes, projection=projection, fit=fit)
    return Fitted(mean=mean, spread=spread, projection=projection, harm=harm, comparing=comparing)
