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

    from benchmarks.acts.passages import Passages
    from benchmarks.acts.settings import Fit

__all__ = ["harm_networks"]


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
        inner = torch.nn.Linear(hidden, fit.units)
        queries, values = (torch.nn.Linear(fit.units, fit.heads, bias=False) for _ in range(2))
        bias = torch.nn.Parameter(torch.zeros(()))
        parts = [*inner.parameters(), *queries.parameters(), *values.parameters(), bias]
        descent = torch.optim.AdamW(parts, fit.rate, weight_decay=0.1)
        slower = torch.optim.lr_scheduler.LinearLR(descent, 1.0, 0.02, fit.harm_epochs)
        for _ in range(fit.harm_epochs):
            for chosen in torch.randperm(len(shown)).split(128):
                batch = passages.batch(shown[chosen.numpy()])
                with torch.autocast("cpu", torch.bfloat16):
                    active = relu(inner(batch.states * kept(batch, hidden, fit.dropped)))
                    active = active * kept(batch, fit.units, fit.dropped)
                    sought, said = queries(active).float(), values(active).float()
                loss = binary_cross_entropy_with_logits(attended(sought, said, batch) + bias, truth[chosen])
                descent.zero_grad()
                loss.backward()
                descent.step()
            slower.step()
        fitted.append(
            [part.detach().numpy() for part in (inner.weight, inner.bias, queries.weight, values.weight, bias)]
        )
    units, units_bias, queries_of, values_of, biases = (np.stack(part) for part in zip(*fitted, strict=True))
    return HarmNetworks(units=units, units_bias=units_bias, queries=queries_of, values=values_of, bias=biases)
