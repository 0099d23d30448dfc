"""The networks that compare a text with an act."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, normalize, relu

from benchmarks.acts.corpus import EACH, HARMFUL, PADDED
from benchmarks.acts.passages import attended, kept
from models.act_networks import ComparingNetworks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.acts.corpus import Scenario
    from benchmarks.acts.passages import Batch, Passages
    from benchmarks.acts.settings import Fit

__all__ = ["Network", "comparing_loss", "comparing_networks"]

SCENARIOS_AT_ONCE = 16


def comparing_networks(
    found: Sequence[Scenario],
    whole: NDArray[np.float32],
    passages: Passages,
    noted: NDArray[np.intp],
    *,
    projection: NDArray[np.float32],
    fit: Fit,
) -> ComparingNetworks:
    """Fit networks that tell texts of an act from safe answers, from notes, and from texts of other acts.

    A text is compared with the act as it was planted, and with another harmful text of its scenario, drawn each time:
    so they learn from eight times as many pairs as there are texts.

    Args:
        found: The scenarios.
        whole: Standardised states of their texts as a whole, shape (scenarios, EACH, hidden).
        passages: Of the scenarios' texts in order, and of notes.
        noted: Numbers of the notes in it.
        projection: To directions, of standardised states.
        fit: How.
    """
    acts = torch.from_numpy(np.ascontiguousarray(whole[:, :HARMFUL], np.float32))
    there = np.ones((len(found), EACH), np.bool_)
    there[[not scenario.padded for scenario in found], HARMFUL + PADDED] = False
    fitted = []
    for network in range(fit.comparing_networks):
        torch.manual_seed(fit.seed + network)
        drawn = np.random.default_rng(fit.seed + network)
        one = Network(torch.from_numpy(projection), fit)
        descent = torch.optim.AdamW(one.parameters(), fit.rate, weight_decay=0.1)
        steps = fit.comparing_epochs * -(-len(found) // SCENARIOS_AT_ONCE)
        slower = torch.optim.lr_scheduler.LinearLR(descent, 1.0, 0.02, steps)
        for _ in range(fit.comparing_epochs):
            for chosen in torch.randperm(len(found)).split(SCENARIOS_AT_ONCE):
                some = chosen.numpy()
                notes = drawn.choice(noted, fit.comparing_notes) if len(noted) else noted
                texts = (some[:, None] * EACH + np.arange(EACH)).ravel()
                batch = passages.batch(np.concatenate([texts, notes]))
                loss = comparing_loss(one, acts[chosen], there[some], batch, drawn)
                descent.zero_grad()
                loss.backward()
                descent.step()
                slower.step()
        fitted.append(one.arrays())
    return ComparingNetworks(**{name: np.stack([arrays[name] for arrays in fitted]) for name in fitted[0]})


def comparing_loss(
    one: Network,
    acts: torch.Tensor,
    there: NDArray[np.bool_],
    batch: Batch,
    drawn: np.random.Generator,
) -> torch.Tensor:
    """Compare texts with the act as it was planted, with another text of it, and with another scenario's act.

    Args:
        one: The network.
        acts: States of each scenario's harmful texts as a whole, the act first; shape (scenarios, harmful, hidden).
        there: Which of a scenario's texts are there, the harmful ones first; shape (scenarios, texts).
        batch: Passages of these texts in order, and of notes.
        drawn: For what is drawn.
    """
    (count, harmful), each = acts.shape[:2], there.shape[1]
    notes = batch.texts - there.size
    active, vectors = one.seen(batch)
    rows, others = np.arange(count), torch.from_numpy(drawn.integers(0, count, notes))
    nothing = np.zeros(notes, np.bool_)

    def loss(keys: torch.Tensor, taught: NDArray[np.bool_], counts: NDArray[np.bool_]) -> torch.Tensor:
        """Return the mean over the texts that count, each compared with its scenario's key; notes with any."""
        odds = one.odds(active, vectors, torch.cat([keys.repeat_interleave(each, 0), keys[others]]), batch)
        truth = torch.from_numpy(np.concatenate([taught, nothing]).astype(np.float32))
        weights = torch.from_numpy(counts.astype(np.float32))
        return (binary_cross_entropy_with_logits(odds, truth, reduction="none") * weights).sum() / weights.sum()

    planted = one.keys(acts[:, 0])
    strange = loss(planted.roll(1, 0), np.zeros(there.size, np.bool_), np.concatenate([there.ravel(), nothing]))
    total = one.fit.strangers_weight * strange if count > 1 else torch.zeros(())
    place = drawn.integers(0, harmful, count)
    drawn_keys = one.keys(acts[torch.from_numpy(rows), torch.from_numpy(place)])
    for keys, itself in ((planted, np.zeros(count, np.intp)), (drawn_keys, place)):
        asked = there.copy()
        asked[rows, itself] = False
        total = total + loss(keys, np.tile(np.arange(each) < harmful, count), np.concatenate([asked.ravel(), ~nothing]))
    return total


class Network:
    """One of them, as torch has it; see `ComparingNetworks`. Acts' directions are not fitted."""

    def __init__(self, projection: torch.Tensor, fit: Fit) -> None:
        dimensions, hidden = projection.shape
        self.fit, self._projection, self._hidden = fit, projection, hidden
        self._matched = projection.clone().requires_grad_()
        self._inner = torch.nn.Linear(hidden, fit.units)
        self._mixed = torch.nn.Linear(fit.units + 2 * dimensions, fit.second)
        self._queries, self._values = (
            torch.nn.Linear(fit.second + fit.units, fit.heads, bias=False) for _ in range(2)
        )  # fmt: skip
        self._bias = torch.nn.Parameter(torch.zeros(()))

    def parameters(self) -> list[torch.Tensor]:
        """Return what is fitted."""
        return list(self.parts().values())

    def keys(self, states: torch.Tensor) -> torch.Tensor:
        """Return acts' directions, with noise, scaled as `ComparingNetworks` scales them."""
        return self._scaled((states + self.fit.noise * torch.randn(states.shape)) @ self._projection.T)

    def seen(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return units and vectors of the passages, some left out at random: the same in all passages of a text."""
        with torch.autocast("cpu", torch.bfloat16):
            states = batch.states * kept(batch, self._hidden, self.fit.dropped)
            active = relu(self._inner(states))
            vectors = states @ self._matched.T
        return active.float() * kept(batch, self.fit.units, self.fit.dropped), self._scaled(vectors.float())

    def odds(self, active: torch.Tensor, vectors: torch.Tensor, keys: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return log-odds that the batch's texts restate an act each; `keys` has one for each text."""
        of_passages = keys[batch.owner]
        with torch.autocast("cpu", torch.bfloat16):
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
        arrays = {name: part.detach().numpy() for name, part in self.parts().items()}
        return arrays | {"matched_bias": np.zeros(len(self._matched), np.float32)}

    def _scaled(self, vectors: torch.Tensor) -> torch.Tensor:
        return normalize(vectors, dim=-1) * float(np.sqrt(vectors.shape[-1]))
