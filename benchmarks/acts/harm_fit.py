"""The networks that tell harm by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, relu

from benchmarks.acts.passages import attended, kept
from models.act_networks import HarmNetworks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.acts.passages import Batch, Passages
    from benchmarks.acts.settings import Fit

__all__ = ["HarmNetwork", "harm_networks"]


def harm_networks(
    passages: Passages, shown: NDArray[np.intp], harmful: NDArray[np.bool_], fit: Fit, hidden: int
) -> HarmNetworks:
    """Fit networks that tell the harmful texts from the others.

    Args:
        passages: Of texts.
        shown: Numbers of the texts to learn from, some more than once.
        harmful: Of each of these.
        fit: How.
        hidden: Dimensions of the states.
    """
    truth = torch.from_numpy(harmful.astype(np.float32))

    fitted = []
    for network in range(fit.networks):
        torch.manual_seed(fit.seed + network)
        one = HarmNetwork(hidden, fit)
        descent = torch.optim.AdamW(one.parameters(), fit.rate, weight_decay=0.1)
        slower = torch.optim.lr_scheduler.LinearLR(descent, 1.0, 0.02, fit.harm_epochs)
        for _ in range(fit.harm_epochs):
            for chosen in torch.randperm(len(shown)).split(128):
                odds = one.odds(passages.batch(shown[chosen.numpy()]))
                loss = binary_cross_entropy_with_logits(odds, truth[chosen])
                descent.zero_grad()
                loss.backward()
                descent.step()
            slower.step()
        fitted.append(one.arrays())
    return HarmNetworks(**{name: np.stack([arrays[name] for arrays in fitted]) for name in fitted[0]})


class HarmNetwork:
    """One of them, as torch has it; see `HarmNetworks`."""

    def __init__(self, hidden: int, fit: Fit) -> None:
        self._hidden, self._fit = hidden, fit
        self._inner = torch.nn.Linear(hidden, fit.units)
        self._queries, self._values = (torch.nn.Linear(fit.units, fit.heads, bias=False) for _ in range(2))
        self._bias = torch.nn.Parameter(torch.zeros(()))

    def parameters(self) -> list[torch.Tensor]:
        """Return what is fitted."""
        return list(self.parts().values())

    def odds(self, batch: Batch) -> torch.Tensor:
        """Return log-odds of harm, shape (texts,); some inputs and units are left out at random."""
        fit = self._fit
        with torch.autocast("cpu", torch.bfloat16):
            active = relu(self._inner(batch.states * kept(batch, self._hidden, fit.dropped)))
            active = active * kept(batch, fit.units, fit.dropped)
            sought, said = self._queries(active).float(), self._values(active).float()
        return attended(sought, said, batch) + self._bias

    def parts(self) -> dict[str, torch.Tensor]:
        """Return what is fitted, under the names of `HarmNetworks`."""
        return {
            "units": self._inner.weight, "units_bias": self._inner.bias, "queries": self._queries.weight,
            "values": self._values.weight, "bias": self._bias,
        }  # fmt: skip

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the parts of `HarmNetworks`."""
        return {name: part.detach().numpy() for name, part in self.parts().items()}
