"""The upper layers of the backbone, adapted together with the networks that read them.

Resumable: a checkpoint is kept every few steps, and what follows is drawn by the number of the step.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.acts.comparing_fit import Network, comparing_loss
from benchmarks.acts.corpus import HARMFUL
from benchmarks.acts.fitting import Fitted
from benchmarks.acts.harm_fit import HarmNetwork
from benchmarks.acts.passages import batch_of
from benchmarks.acts.settings import Fit
from models.act_networks import ComparingNetworks, HarmNetworks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.acts.corpus import Note, Scenario
    from benchmarks.acts.settings import Adapting
    from jobs.progress import Reporter
    from models.hidden_states import HiddenStates

__all__ = ["adapted_reader"]

KEPT_EVERY = 10


def adapted_reader(
    found: Sequence[Scenario],
    noted: Sequence[Note],
    states: HiddenStates,
    start: Callable[[], Fitted],
    how: Adapting,
    *,
    checkpoint: Path,
    reporter: Reporter,
) -> tuple[Fitted, dict[str, NDArray[np.float32]]]:
    """Return the reader, and the updates that it reads with, in the precision of the packaged file.

    Args:
        found: The scenarios.
        noted: Notes; the networks learn from them too.
        states: Of the plain backbone.
        start: Fits the reader on its states; called where there is no checkpoint.
        how: How.
        checkpoint: Of the same texts and settings only.
        reporter: For progress.
    """
    known = torch.load(checkpoint, weights_only=True) if checkpoint.is_file() else None
    before = start() if known is None else _fitted(known["reader"])
    trained = _Trained(before, states, how, None if known is None else known["updates"])
    done = 0
    if known is not None:
        trained.descent.load_state_dict(known["descent"])
        done = known["steps"]
    with reporter.stage("adapting layers", how.steps) as progress:
        progress.advance(done)
        for step in range(done, how.steps):
            trained.step(step, found, noted)
            progress.advance()
            if (step + 1) % KEPT_EVERY == 0 or step + 1 == how.steps:
                trained.keep(checkpoint, step + 1)
    updates = {name: part.detach().numpy().astype(np.float16) for name, part in trained.updates.items()}
    return trained.fitted(), {name: part.astype(np.float32) for name, part in updates.items()}


class _Trained:
    """The networks and updates as torch has them."""

    def __init__(
        self, start: Fitted, states: HiddenStates, how: Adapting, updates: dict[str, torch.Tensor] | None
    ) -> None:
        self._start, self._how = start, how
        self.updates = {name: torch.nn.Parameter(part) for name, part in (updates or _blank(states, how)).items()}
        self._causal, self._both_ways = (states.updated(self.updates, both_ways=both) for both in (False, True))
        self._mean, self._spread = torch.from_numpy(start.mean), torch.from_numpy(start.spread)
        hidden, compared = len(start.mean), start.comparing
        fit = Fit(
            units=start.harm.units.shape[1], heads=start.harm.queries.shape[1], second=compared.mixed.shape[1],
            dropped=how.dropped, noise=0.0,
        )  # fmt: skip
        self._harm = [HarmNetwork(hidden, fit) for _ in start.harm.bias]
        projection = torch.from_numpy(start.projection)
        self._comparing = [Network(projection, replace(fit, units=compared.units.shape[1])) for _ in compared.bias]
        with torch.no_grad():
            for networks, arrays in ((self._harm, start.harm), (self._comparing, compared)):
                for number, network in enumerate(networks):
                    for name, part in network.parts().items():
                        part.copy_(torch.from_numpy(np.asarray(getattr(arrays, name)[number])))
        parts = [part for network in (*self._harm, *self._comparing) for part in network.parts().values()]
        down, up = ([part for name, part in self.updates.items() if name.endswith(kind)] for kind in (".down", ".up"))
        self.descent = torch.optim.AdamW([
            {"params": down, "highest": how.rate, "weight_decay": 0.01},
            {"params": up, "highest": 2 * how.rate, "weight_decay": 0.01},
            {"params": parts, "highest": how.networks_rate, "weight_decay": 0.1},
        ])  # fmt: skip

    def step(self, step: int, found: Sequence[Scenario], noted: Sequence[Note]) -> None:
        """Learn from some scenarios and notes: in each round from every scenario once."""
        how = self._how
        drawn = np.random.default_rng((how.seed, step))
        torch.manual_seed(int(drawn.integers(2**31)))
        each = max(1, len(found) // how.scenarios)
        order = np.random.default_rng((how.seed, step // each, 1)).permutation(len(found))
        some = order[step % each * how.scenarios :][: how.scenarios]
        notes = drawn.choice(len(noted), min(how.notes, len(noted)), replace=False) if noted else ()
        through = self._causal if step < how.causal_steps else self._both_ways
        loss = self._loss(through, [found[number] for number in some], [noted[number] for number in notes], drawn)
        for group in self.descent.param_groups:
            group["lr"] = group["highest"] * min(1, (step + 1) / how.warm) * (1 - 0.95 * step / how.steps)
        self.descent.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.updates.values(), 1.0)
        self.descent.step()

    def _loss(
        self, through: HiddenStates, found: Sequence[Scenario], noted: Sequence[Note], drawn: np.random.Generator
    ) -> torch.Tensor:
        how = self._how
        texts: list[str] = []
        for scenario in found:
            for count, harmful in ((how.restated, True), (how.safe, False)):
                texts += [scenario.texts[0]] if harmful else []
                those = [place for place in scenario.writes if (place < HARMFUL) == harmful]
                texts += [scenario.texts[place] for place in drawn.choice(those, count, replace=False)]
        harmful, shown = 1 + how.restated, len(texts) // len(found)
        read = through.tensors([*texts, *(note.text for note in noted)])
        standard = [(states - self._mean) / self._spread for states in read]
        batch = batch_of(standard)
        whole = batch.states[batch.place == 0][: len(texts)]
        acts = whole.reshape(len(found), shown, -1)[:, :harmful]
        there = np.ones((len(found), shown), np.bool_)
        taught = [*np.tile(np.arange(shown) < harmful, len(found)).tolist(), *(note.bad for note in noted)]
        truth = torch.tensor(taught, dtype=torch.float32)
        total = torch.zeros(())
        for network in self._harm:
            total = total + binary_cross_entropy_with_logits(network.odds(batch), truth)
        for comparing in self._comparing:
            total = total + comparing_loss(comparing, acts, there, batch, drawn)
        return total

    def keep(self, checkpoint: Path, steps: int) -> None:
        """Write the checkpoint, whole or not at all."""
        partial = checkpoint.with_suffix(".partial")
        kept = {
            "reader": _tensors(asdict(self.fitted())), "descent": self.descent.state_dict(), "steps": steps,
            "updates": {name: part.detach() for name, part in self.updates.items()},
        }  # fmt: skip
        torch.save(kept, partial)
        partial.replace(checkpoint)

    def fitted(self) -> Fitted:
        """Return the networks as they are now."""
        harm, comparing = (
            {name: np.stack([network.arrays()[name] for network in networks]) for name in networks[0].arrays()}
            for networks in (self._harm, self._comparing)
        )
        return replace(self._start, harm=HarmNetworks(**harm), comparing=ComparingNetworks(**comparing))


def _blank(states: HiddenStates, how: Adapting) -> dict[str, torch.Tensor]:
    """Return updates that change nothing yet."""
    drawn = torch.Generator().manual_seed(how.seed)
    blank = {}
    for name, (outputs, inputs) in states.linear_layers().items():
        if int(name.partition(".")[0]) in how.layers:
            blank[f"{name}.down"] = torch.randn(how.rank, inputs, generator=drawn) / inputs**0.5
            blank[f"{name}.up"] = torch.zeros(outputs, how.rank)
    return blank


def _tensors(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: _tensors(part) if isinstance(part, dict) else torch.from_numpy(np.asarray(part))
            for name, part in parts.items()}  # fmt: skip


def _fitted(parts: dict[str, Any]) -> Fitted:
    mean, spread, projection = (parts[name].numpy() for name in ("mean", "spread", "projection"))
    harm, comparing = ({name: part.numpy() for name, part in parts[kind].items()} for kind in ("harm", "comparing"))
    return Fitted(
        mean=mean, spread=spread, projection=projection, harm=HarmNetworks(**harm),
        comparing=ComparingNetworks(**comparing),
    )  # fmt: skip
