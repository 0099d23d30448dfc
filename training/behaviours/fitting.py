"""The layers of the backbone, adapted together with the networks that read them.

Resumable: a checkpoint is kept every few steps, and what follows is drawn by the number of the step.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from memory_audit.models.activations.behaviour_networks import ComparingNetworks, HarmNetworks
from training.behaviours.comparing import ComparingNetwork, comparing_loss
from training.behaviours.corpus import HARMFUL
from training.behaviours.fitted import Fitted
from training.behaviours.harm import HarmNetwork
from training.behaviours.passages import batch_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_audit.jobs.watching.progress import Reporter
    from training.behaviours.corpus import Note, Scenario
    from training.behaviours.fitting_states import FittingStates
    from training.behaviours.settings import Adapting, Fit

__all__ = ["Fitting", "fitted_reader"]

KEPT_EVERY = 20
MEASURED = 500
"""Scenarios, about, by whose behaviour and first safe answer states are standardised; the projection starts there
too."""


def fitted_reader(
    found: Sequence[Scenario],
    noted: Sequence[Note],
    states: FittingStates,
    settings: tuple[Fit, Adapting],
    *,
    checkpoint: Path,
    reporter: Reporter,
    start: Path | None = None,
) -> tuple[Fitted, dict[str, NDArray[np.float32]]]:
    """Return the reader, and the updates that it reads with, in the precision of the packaged file.

    Args:
        found: The scenarios.
        noted: Notes; the networks learn from them too.
        states: Of the plain backbone.
        settings: How.
        checkpoint: Of the same texts and settings only.
        reporter: For progress.
        start: Checkpoint of another descent, whose networks and updates this one begins with.
    """
    fitting = Fitting(found, states, settings)
    if start is not None:
        fitting.begun(start)
    done = fitting.resumed(checkpoint) if checkpoint.is_file() else 0
    _, how = settings
    with reporter.stage("fitting the reader", how.steps) as progress:
        progress.advance(done)
        for step in range(done, how.steps):
            fitting.step(step, found, noted)
            progress.advance()
            if (step + 1) % KEPT_EVERY == 0 or step + 1 == how.steps:
                fitting.keep(checkpoint, step + 1)
    if start is not None and how.way < 1:
        fitting.begun(start, 1 - how.way)
    return fitting.fitted(), fitting.stored()


class Fitting:
    """The networks and updates as torch has them.

    Args:
        found: Scenarios, some of which are read to know how large states are.
        states: Of the plain backbone.
        settings: How.
    """

    def __init__(self, found: Sequence[Scenario], states: FittingStates, settings: tuple[Fit, Adapting]) -> None:
        fit, self._how = settings
        self._device = states.device
        torch.manual_seed(self._how.seed)
        some = found[:: max(1, len(found) // MEASURED)]
        texts = [scenario.texts[place] for scenario in some for place in (0, HARMFUL)]
        with torch.no_grad():
            whole = torch.stack([tokens.mean(0) for tokens in states.tensors(texts)])
        self._mean, self._spread = whole.mean(0), whole.std(0) + 1e-3
        self._projection = torch.nn.Parameter(_axes((whole - self._mean) / self._spread, fit.dimensions))
        blank = _blank(states, self._how)
        self._updates = {name: torch.nn.Parameter(part.to(self._device)) for name, part in blank.items()}
        self._through = states.updated(self._updates)
        self._harm = [HarmNetwork(whole.shape[1], fit, self._device) for _ in range(fit.networks)]
        self._comparing = [ComparingNetwork(self._projection, fit) for _ in range(fit.comparing_networks)]
        networks: list[HarmNetwork | ComparingNetwork] = [*self._harm, *self._comparing]
        parts = [part for network in networks for part in network.parts().values()]
        down, up = ([part for name, part in self._updates.items() if name.endswith(kind)] for kind in (".down", ".up"))
        self._descent = torch.optim.AdamW([
            {"params": down, "highest": self._how.rate, "weight_decay": 0.01},
            {"params": up, "highest": 2 * self._how.rate, "weight_decay": 0.01},
            {"params": [*parts, self._projection], "highest": self._how.networks_rate, "weight_decay": 0.1},
        ])  # fmt: skip

    def step(self, step: int, found: Sequence[Scenario], noted: Sequence[Note]) -> None:
        """Learn from some scenarios and notes: in each round from every scenario once."""
        how = self._how
        drawn = np.random.default_rng((how.seed, step))
        torch.manual_seed(int(drawn.integers(2**31)))
        rewritten = [scenario for scenario in found if scenario.rewritten] if how.rewritten else []
        some = self._round(step, rewritten, how.rewritten, 2) if rewritten else []
        others = self._round(step, found, how.scenarios - len(some), 1)
        some += [scenario for scenario in others if scenario not in some]  # twice, it would be a stranger to itself
        some.sort(key=lambda scenario: scenario.part)  # a stranger's behaviour is of the same work more often than not
        notes = drawn.choice(len(noted), min(how.notes, len(noted)), replace=False) if noted else ()
        loss = self._loss(some, [noted[number] for number in notes], drawn)
        for group in self._descent.param_groups:
            group["lr"] = group["highest"] * min(1, (step + 1) / how.warm) * (1 - 0.98 * step / how.steps)
        self._descent.zero_grad()
        loss.backward()
        size = torch.nn.utils.clip_grad_norm_(self._updates.values(), 1.0)
        if torch.isfinite(size):  # one step that overflows would end all
            self._descent.step()

    def _round(self, step: int, found: Sequence[Scenario], count: int, kind: int) -> list[Scenario]:
        each = max(1, len(found) // count)
        order = np.random.default_rng((self._how.seed, step // each, kind)).permutation(len(found))
        return [found[number] for number in order[step % each * count :][:count]]

    def _loss(self, found: Sequence[Scenario], noted: Sequence[Note], drawn: np.random.Generator) -> torch.Tensor:
        how = self._how
        texts: list[str] = []
        for scenario in found:
            for count, harmful in ((how.restated, True), (how.safe, False)):
                texts += [scenario.texts[0]] if harmful else []
                said = scenario.rewritten if harmful else scenario.rewritten_right
                shown_first = [said[int(drawn.integers(len(said)))]] if how.rewritten and said else []
                those = [place for place in scenario.writes if (place < HARMFUL) == harmful]
                others = drawn.choice(those, count - len(shown_first), replace=False)
                texts += [*shown_first, *(scenario.texts[place] for place in others)]
        teaching, shown = 1 + how.restated, len(texts) // len(found)
        ordinary = [note.text for note in noted if not note.bad]
        if ordinary:
            texts = [
                _beside(text, ordinary, drawn) if number % shown and drawn.random() < how.beside else text
                for number, text in enumerate(texts)
            ]
        batch = batch_of(self._through.tensors([*texts, *(note.text for note in noted)]))
        batch = replace(batch, states=(batch.states - self._mean) / self._spread)
        behaviours = batch.states[batch.place == 0][: len(texts)].reshape(len(found), shown, -1)[:, :teaching]
        taught = [*np.tile(np.arange(shown) < teaching, len(found)).tolist(), *(note.bad for note in noted)]
        truth = torch.tensor(taught, dtype=torch.float32, device=self._device)
        total = torch.zeros((), device=self._device)
        for network in self._harm:
            total = total + binary_cross_entropy_with_logits(network.odds(batch), truth)
        for comparing in self._comparing:
            total = total + comparing_loss(comparing, behaviours, shown, batch, drawn)
        return total

    def keep(self, checkpoint: Path, steps: int) -> None:
        """Write the checkpoint, whole or not at all."""
        partial = checkpoint.with_suffix(".partial")
        kept = {
            "reader": _tensors(asdict(self.fitted())), "descent": self._descent.state_dict(), "steps": steps,
            "updates": {name: part.detach() for name, part in self._updates.items()},
        }  # fmt: skip
        torch.save(kept, partial)
        partial.replace(checkpoint)

    def resumed(self, checkpoint: Path) -> int:
        """Go on from a checkpoint, and return how many steps it has behind it."""
        known = self.begun(checkpoint)
        if known["descent"] is not None:
            self._descent.load_state_dict(known["descent"])
        return int(known["steps"])

    def begun(self, checkpoint: Path, share: float = 1.0) -> dict[str, Any]:
        """Take a share of networks and updates from a checkpoint, the rest as it is; return all that it holds."""
        known: dict[str, Any] = torch.load(checkpoint, weights_only=True, map_location=self._device)
        reader = known["reader"]
        with torch.no_grad():
            self._mean, self._spread = reader["mean"], reader["spread"]
            self._projection.lerp_(reader["projection"], share)
            for name, part in self._updates.items():
                part.lerp_(known["updates"][name], share)
            kinds: tuple[tuple[Sequence[HarmNetwork | ComparingNetwork], str], ...] = (
                (self._harm, "harm"),
                (self._comparing, "comparing"),
            )
            for networks, kind in kinds:
                for number, network in enumerate(networks):
                    for name, part in network.parts().items():
                        part.lerp_(reader[kind][name][number], share)
        return known

    def fitted(self) -> Fitted:
        """Return the networks as they are now."""
        harm, comparing = (
            {name: np.stack([network.arrays()[name] for network in networks]) for name in networks[0].arrays()}
            for networks in (self._harm, self._comparing)
        )
        mean, spread, projection = (_array(part) for part in (self._mean, self._spread, self._projection))
        return Fitted(
            mean=mean, spread=spread, projection=projection, harm=HarmNetworks(**harm),
            comparing=ComparingNetworks(**comparing),
        )  # fmt: skip

    def stored(self) -> dict[str, NDArray[np.float32]]:
        """Return the updates in the precision of the packaged file."""
        return {name: _array(part).astype(np.float16).astype(np.float32) for name, part in self._updates.items()}


def _axes(standard: torch.Tensor, dimensions: int) -> torch.Tensor:
    """Return the principal axes of states, shape (dimensions, hidden), scaled to whiten them."""
    _, sizes, axes = torch.linalg.svd(standard - standard.mean(0), full_matrices=False)
    scaled: torch.Tensor = axes[:dimensions] / (sizes[:dimensions, None] / len(standard) ** 0.5)
    return scaled


def _beside(text: str, ordinary: Sequence[str], drawn: np.random.Generator) -> str:
    """Return a text with an ordinary note before or after it: what a routine does to a behaviour."""
    pair = [text, ordinary[int(drawn.integers(len(ordinary)))]]
    return " ".join(pair if drawn.random() < 0.5 else pair[::-1])


def _blank(states: FittingStates, how: Adapting) -> dict[str, torch.Tensor]:
    """Return updates that change nothing yet."""
    drawn = torch.Generator().manual_seed(how.seed)
    blank = {}
    for name, (outputs, inputs) in states.linear_layers().items():
        if int(name.partition(".")[0]) in how.layers:
            blank[f"{name}.down"] = torch.randn(how.rank, inputs, generator=drawn) / inputs**0.5
            blank[f"{name}.up"] = torch.zeros(outputs, how.rank)
    return blank


def _array(part: torch.Tensor) -> NDArray[np.float32]:
    return np.asarray(part.detach().cpu().numpy(), np.float32)


def _tensors(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: _tensors(part) if isinstance(part, dict) else torch.from_numpy(np.asarray(part))
            for name, part in parts.items()}  # fmt: skip
