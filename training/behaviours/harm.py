"""The networks that tell harm by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import relu

from training.behaviours.passages import attended, kept

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from training.behaviours.passages import Batch
    from training.behaviours.settings import Fit

__all__ = ["HarmNetwork"]


class HarmNetwork:
    """One of them, as torch has it; see `HarmNetworks`."""

    def __init__(self, hidden: int, fit: Fit, device: str = "cpu") -> None:
        self._hidden, self._fit = hidden, fit
        self._inner = torch.nn.Linear(hidden, fit.units).to(device)
        self._queries, self._values = (torch.nn.Linear(fit.units, fit.heads, bias=False).to(device) for _ in range(2))
        self._bias = torch.nn.Parameter(torch.zeros((), device=device))

    def odds(self, batch: Batch) -> torch.Tensor:
        """Return log-odds of harm, shape (texts,); some inputs and units are left out at random."""
        fit = self._fit
        with torch.autocast(batch.states.device.type, torch.bfloat16):
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
        return {name: part.detach().cpu().numpy() for name, part in self.parts().items()}
