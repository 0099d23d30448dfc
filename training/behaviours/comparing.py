"""The networks that compare a text with a behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, normalize, relu

from training.behaviours.passages import attended, kept

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from training.behaviours.passages import Batch
    from training.behaviours.settings import Fit

__all__ = ["ComparingNetwork", "comparing_loss"]


def comparing_loss(
    one: ComparingNetwork, behaviours: torch.Tensor, each: int, batch: Batch, drawn: np.random.Generator
) -> torch.Tensor:
    """Compare texts with the behaviour as it was planted, with another text of it, and with those of other scenarios.

    So they learn from many more pairs than there are texts.

    Args:
        one: The network.
        behaviours: States of each scenario's harmful texts as a whole, the behaviour first; shape (scenarios, harmful,
            hidden).
        each: Texts of a scenario, the harmful ones first.
        batch: Passages of these texts in order, and of notes, which restate no behaviour.
        drawn: For what is drawn.
    """
    count, harmful = behaviours.shape[:2]
    notes = batch.texts - count * each
    active, vectors = one.seen(batch)
    rows, others = np.arange(count), torch.from_numpy(drawn.integers(0, count, notes))
    there, nothing = np.ones((count, each), np.bool_), np.zeros(notes, np.bool_)

    def loss(keys: torch.Tensor, taught: NDArray[np.bool_], counts: NDArray[np.bool_]) -> torch.Tensor:
        """Return the mean over the texts that count, each compared with its scenario's key; notes with any."""
        odds = one.odds(active, vectors, torch.cat([keys.repeat_interleave(each, 0), keys[others]]), batch)
        truth, weights = (
            torch.from_numpy(part.astype(np.float32)).to(odds.device)
            for part in (np.concatenate([taught, nothing]), counts)
        )
        return (binary_cross_entropy_with_logits(odds, truth, reduction="none") * weights).sum() / weights.sum()

    planted = one.keys(behaviours[:, 0])
    total = torch.zeros((), device=behaviours.device)
    strangers = range(1, min(one.fit.strangers + 1, count))
    for stranger in strangers:
        strange = loss(planted.roll(stranger, 0), ~there.ravel(), np.concatenate([there.ravel(), nothing]))
        total = total + one.fit.strangers_weight / len(strangers) * strange
    place = drawn.integers(0, harmful, count)
    drawn_keys = one.keys(behaviours[torch.from_numpy(rows), torch.from_numpy(place)])
    for keys, itself in ((planted, np.zeros(count, np.intp)), (drawn_keys, place)):
        asked = there.copy()
        asked[rows, itself] = False
        total = total + loss(keys, np.tile(np.arange(each) < harmful, count), np.concatenate([asked.ravel(), ~nothing]))
    return total


class ComparingNetwork:
    """One of them, as torch has it; see `ComparingNetworks`.

    Args:
        projection: To behaviours' directions, shape (dimensions, hidden); all networks fit the same one.
        fit: How.
    """

    def __init__(self, projection: torch.Tensor, fit: Fit) -> None:
        (dimensions, hidden), device = projection.shape, projection.device
        self.fit, self._projection, self._hidden = fit, projection, hidden
        self._matched = projection.detach().clone().requires_grad_()
        self._inner = torch.nn.Linear(hidden, fit.units).to(device)
        self._mixed = torch.nn.Linear(fit.units + 2 * dimensions, fit.second).to(device)
        self._queries, self._values = (
            torch.nn.Linear(fit.second + fit.units, fit.heads, bias=False).to(device) for _ in range(2)
        )  # fmt: skip
        self._bias = torch.nn.Parameter(torch.zeros((), device=device))

    def keys(self, states: torch.Tensor) -> torch.Tensor:
        """Return behaviours' directions, scaled as `ComparingNetworks` scales them."""
        return self._scaled(states @ self._projection.T)

    def seen(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return units and vectors of the passages, some left out at random: the same in all passages of a text."""
        with torch.autocast(batch.states.device.type, torch.bfloat16):
            states = batch.states * kept(batch, self._hidden, self.fit.dropped)
            active = relu(self._inner(states))
            vectors = states @ self._matched.T
        return active.float() * kept(batch, self.fit.units, self.fit.dropped), self._scaled(vectors.float())

    def odds(self, active: torch.Tensor, vectors: torch.Tensor, keys: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return log-odds that the batch's texts restate a behaviour each; `keys` has one for each text."""
        of_passages = keys[batch.owner]
        with torch.autocast(batch.states.device.type, torch.bfloat16):
            second = relu(self._mixed(torch.cat([active, vectors * of_passages, of_passages], dim=-1)))
            told = torch.cat([second, active.to(second.dtype)], dim=-1)
            sought, said = self._queries(told).float(), self._values(told).float()
        return attended(sought, said, batch) + self._bias

    def parts(self) -> dict[str, torch.Tensor]:
        """Return what is fitted, under the names of `ComparingNetworks`; of `matched` there is no bias to fit."""
        return {
            "units": self._inner.weight, "units_bias": self._inner.bias, "matched": self._matched,
            "mixed": self._mixed.weight, "mixed_bias": self._mixed.bias, "queries": self._queries.weight,
            "values": self._values.weight, "bias": self._bias,
        }  # fmt: skip

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the parts of `ComparingNetworks`."""
        arrays = {name: part.detach().cpu().numpy() for name, part in self.parts().items()}
        return arrays | {"matched_bias": np.zeros(len(self._matched), np.float32)}

    def _scaled(self, vectors: torch.Tensor) -> torch.Tensor:
        return normalize(vectors, dim=-1) * float(np.sqrt(vectors.shape[-1]))
