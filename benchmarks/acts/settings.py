"""How the reader of acts is fitted."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Adapting", "Fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How the reader is fitted; chosen out of fold."""

    dimensions: int = 128
    temperature: float = 0.1
    """Of the contrastive loss."""

    safe_weight: float = 4.0
    """How many strangers a safe answer to the same request counts for."""

    noise: float = 0.3
    """Added to standardised states while fitting."""

    pull: float = 0.1
    """Towards the principal components that the projection starts from."""

    epochs: int = 40
    units: int = 256
    """Of the first layer of each network."""

    heads: int = 8
    """Of the attention over a text's passages."""

    networks: int = 3
    """How many tell harm, from different starts; their mean is what counts."""

    dropped: float = 0.4
    """Share of inputs, and of units, left out at random while fitting: the same in all passages of a text."""

    harm_epochs: int = 15
    rate: float = 1e-3
    """Learning rate of the networks at the start, falling to a fiftieth."""

    comparing_networks: int = 3
    """How many compare a text with an act."""

    second: int = 128
    """Units of their second layer."""

    comparing_epochs: int = 12
    strangers_weight: float = 0.2
    """Of acts of other scenarios, in the loss of those that compare; one's own count 1."""

    comparing_notes: int = 24
    """Notes among the texts of 16 scenarios, which restate no act."""

    note_weight: int = 3
    """How often a note is shown, where a text of a scenario is shown once."""

    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapting:
    """How layers of the backbone are adapted, and the networks with them; chosen on scenarios held before."""

    steps: int = 1_300
    causal_steps: int = 600
    """The first ones; after them the layers attend both ways."""

    rank: int = 8
    layers: tuple[int, ...] = (8, 9, 10, 11)
    """Numbered from 0; the last ones that are read."""

    scenarios: int = 16
    """In a step."""

    restated: int = 4
    """Restatements of each in a step."""

    safe: int = 4
    """Safe answers of each in a step."""

    notes: int = 16
    """In a step."""

    dropped: float = 0.2
    """Share of inputs of the networks, and of units, left out at random."""

    rate: float = 4e-4
    """Learning rate of what leads down to the rank, falling to a twentieth; what leads up has twice as much."""

    networks_rate: float = 1e-4
    """Of the networks, which start as they were fitted on the plain layers."""

    warm: int = 10
    """Steps until the rates are at their height."""

    seed: int = 0
