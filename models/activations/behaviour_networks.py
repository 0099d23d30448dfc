"""The small networks that read behaviours: over short passages of a text, pooled by attention.

Harmless sentences around a behaviour do not drown it: attention says which passages count. Both kinds are ensembles of
a few networks from different starts; their mean counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ComparingNetworks", "HarmNetworks"]

_AT_ONCE = 256
"""Behaviours compared in one step, which holds passages * behaviours * units of the second layer in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmNetworks:
    """Tell harm by itself, whatever was removed: one layer of rectified units."""

    units: NDArray[np.float32]
    """Shape (networks, units, hidden)."""

    units_bias: NDArray[np.float32]
    """Shape (networks, units)."""

    queries: NDArray[np.float32]
    """Shape (networks, heads, units): what a head looks for in a passage."""

    values: NDArray[np.float32]
    """Shape (networks, heads, units): what a passage says where a head looks."""

    bias: NDArray[np.float32]
    """Shape (networks,)."""

    def log_odds(self, passages: NDArray[np.float32]) -> float:
        """Return the log-odds in nats that a text of these passages, shape (passages, hidden), teaches harm."""
        told = []
        for units, bias, queries, values in zip(self.units, self.units_bias, self.queries, self.values, strict=True):
            active = np.maximum(passages @ units.T + bias, 0)
            told.append(float(_attended(active @ queries.T, active @ values.T)))
        return sum(told) / len(told) + float(self.bias.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparingNetworks:
    """Tell whether a text restates a given behaviour: each passage is held against it before attention pools them.

    A passage is seen as rectified units, which know nothing of the behaviour, and as a unit vector in the space of the
    behaviours' directions; a second layer takes the units, the products of vector and direction, and the direction.
    """

    units: NDArray[np.float32]
    """Shape (networks, units, hidden)."""

    units_bias: NDArray[np.float32]
    """Shape (networks, units)."""

    matched: NDArray[np.float32]
    """Shape (networks, dimensions, hidden): to the space of directions."""

    matched_bias: NDArray[np.float32]
    """Shape (networks, dimensions)."""

    mixed: NDArray[np.float32]
    """Shape (networks, second, units + 2 * dimensions)."""

    mixed_bias: NDArray[np.float32]
    """Shape (networks, second)."""

    queries: NDArray[np.float32]
    """Shape (networks, heads, second + units)."""

    values: NDArray[np.float32]
    """Shape (networks, heads, second + units)."""

    bias: NDArray[np.float32]
    """Shape (networks,)."""

    def seen(self, passages: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return passages as `log_odds` takes them: what can be said of them before a behaviour is known.

        Args:
            passages: Shape (passages, hidden).

        Returns:
            Shape (passages, networks * (units + dimensions)).
        """
        parts = []
        for units, units_bias, matched, matched_bias in zip(
            self.units, self.units_bias, self.matched, self.matched_bias, strict=True
        ):
            vectors = passages @ matched.T + matched_bias
            parts += [np.maximum(passages @ units.T + units_bias, 0), _unit(vectors) * _scale(vectors.shape[1])]
        return np.asarray(np.concatenate(parts, axis=1), np.float32)

    def log_odds(self, seen: NDArray[np.float32], behaviours: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-odds in nats that a text restates each behaviour, shape (behaviours,).

        Args:
            seen: Of the text's passages, from `seen`.
            behaviours: Directions, unit vectors, shape (behaviours, dimensions).
        """
        if len(behaviours) > _AT_ONCE:
            parts = np.split(behaviours, range(_AT_ONCE, len(behaviours), _AT_ONCE))
            return np.concatenate([self.log_odds(seen, part) for part in parts])
        wide, dimensions = self.units.shape[1], self.matched.shape[1]
        keys = behaviours * _scale(dimensions)
        told = np.zeros(len(behaviours), np.float32)
        start = 0
        for mixed, mixed_bias, queries, values in zip(
            self.mixed, self.mixed_bias, self.queries, self.values, strict=True
        ):
            active, vectors = seen[:, start : start + wide], seen[:, start + wide : start + wide + dimensions]
            start += wide + dimensions
            of_units, of_products, of_acts = np.split(mixed, (wide, wide + dimensions), axis=1)
            products = vectors[:, None] * keys
            second = np.maximum(
                products @ of_products.T
                + (active @ of_units.T + mixed_bias)[:, None] + keys @ of_acts.T,
                0,
            )  # fmt: skip
            count = second.shape[-1]
            sought, said = (
                second @ heads[:, :count].T + (active @ heads[:, count:].T)[:, None] for heads in (queries, values)
            )
            told += _attended(sought, said)
        return np.asarray(told / len(self.mixed) + self.bias.mean(), np.float32)


def _attended(sought: NDArray[np.float32], said: NDArray[np.float32]) -> NDArray[np.float32]:
    """Pool what passages say where each head looks; passages come first, heads last, and both are summed over."""
    attention = np.exp(sought - sought.max(axis=0))
    return np.asarray((attention / attention.sum(axis=0) * said).sum(axis=(0, -1)), np.float32)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def _scale(dimensions: int) -> float:
    """Components of about 1, which layers take more readily than small ones."""
    return float(np.sqrt(dimensions))
