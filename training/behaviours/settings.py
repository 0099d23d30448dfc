"""How the reader of behaviours is fitted."""

from __future__ import annotations

from dataclasses import dataclass

from memory_audit.models.activations.behaviour_reader import FIRST, SECOND

__all__ = ["FURTHER", "OF_SECOND", "Adapting", "Fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The networks, and what they are asked while they are fitted."""

    dimensions: int = 128
    """Of the behaviours' directions."""

    units: int = 256
    """Of the first layer of each network."""

    heads: int = 8
    """Of the attention over a text's passages."""

    networks: int = 3
    """How many tell harm, from different starts; their mean is what counts."""

    comparing_networks: int = 3
    """How many compare a text with a behaviour."""

    second: int = 128
    """Units of their second layer."""

    dropped: float = 0.2
    """Share of inputs, and of units, left out at random while fitting: the same in all passages of a text."""

    strangers: int = 2
    """Behaviours of other scenarios that each text is compared with."""

    strangers_weight: float = 0.2
    """Of all of them, in the loss of those that compare; one's own count 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapting:
    """How layers of the backbone are adapted, and the networks with them."""

    steps: int = 740
    rank: int = 16
    layers: tuple[int, ...] = tuple(range(FIRST.layer))
    """Numbered from 0; all that are read."""

    scenarios: int = 32
    """In a step."""

    restated: int = 4
    """Restatements of each in a step."""

    safe: int = 4
    """Safe answers of each in a step."""

    notes: int = 32
    """In a step."""

    beside: float = 0.1
    """Share of texts that an ordinary note is put before or after."""

    rate: float = 3e-4
    """Learning rate of what leads down to the rank, falling to a fiftieth; what leads up has twice as much."""

    networks_rate: float = 5e-4
    """Of the networks and the projection, likewise."""

    warm: int = 50
    """Steps until the rates are at their height."""

    rewritten: int = 0
    """Scenarios of a step that are drawn from those that a small model rewrote, and show a rewrite of each side."""

    way: float = 1.0
    """How far the weights go from where the descent began to where it ended (WiSE-FT, Wortsman et al. 2022)."""

    seed: int = 0


FURTHER = Adapting(
    steps=180, scenarios=12, restated=2, safe=3, notes=8, rate=1e-4, networks_rate=1.5e-4, warm=15, rewritten=9, way=0.5
)
"""What may follow: at a low rate, with what a small model makes of the texts."""

OF_SECOND = Adapting(steps=925, rank=8, layers=tuple(range(SECOND.layer)), restated=5, safe=5, rewritten=6)
"""Of the second reader (`activations.behaviour_cascade`): of some scenarios, a small model's rewrite is one of the
texts."""
