"""The projection to directions: texts of one act together, away from safe answers and from all other texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import normalize

from benchmarks.acts.corpus import HARMFUL, RESTATED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.acts.settings import Fit

__all__ = ["contrasted"]


def contrasted(standard: NDArray[np.float32], fit: Fit) -> NDArray[np.float32]:
    """Return the projection, shape (dimensions, hidden).

    Args:
        standard: Standardised states of whole texts, shape (scenarios, texts, hidden).
        fit: How.
    """
    drawn = torch.Generator().manual_seed(fit.seed)
    states = torch.from_numpy(np.ascontiguousarray(standard, np.float32))
    flat = standard.reshape(-1, standard.shape[-1])
    _, sizes, axes = np.linalg.svd(flat - flat.mean(0), full_matrices=False)
    start = axes[: fit.dimensions] / np.sqrt(sizes[: fit.dimensions, None] / np.sqrt(len(flat)))
    weights = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    origin, size = weights.detach().clone(), float((weights.detach() ** 2).sum())
    descent = torch.optim.Adam([weights], lr=0.03 * float(weights.detach().abs().mean()))
    for _ in range(fit.epochs):
        for chosen in torch.randperm(len(states), generator=drawn).split(64):
            rows = torch.arange(len(chosen))
            batch = states[chosen]
            batch = batch + fit.noise * torch.randn(batch.shape, generator=drawn)
            found = normalize(batch @ weights.T, dim=-1)
            key = torch.randint(0, HARMFUL, (len(chosen),), generator=drawn)
            near = torch.einsum("br,ckr->bck", found[rows, key], found) / fit.temperature
            own = near[rows, rows]
            strangers = near.clone()
            strangers[rows, rows] = -1e9
            against = torch.logaddexp(
                torch.logsumexp(strangers.flatten(1), 1),
                torch.logsumexp(own[:, HARMFUL:], 1) + float(np.log(fit.safe_weight)),
            )
            same = torch.ones(len(chosen), HARMFUL, dtype=torch.bool)
            same[rows, key] = False
            together = own[:, :HARMFUL][same].reshape(len(chosen), RESTATED)
            loss = (torch.logaddexp(together, against[:, None]) - together).mean()
            loss = loss + fit.pull * ((weights - origin) ** 2).sum() / size
            descent.zero_grad()
            loss.backward()
            descent.step()
    return np.asarray(weights.detach().numpy(), np.float32)
