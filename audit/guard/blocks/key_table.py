"""Keys of many tombstones as one matrix that is quick to compare with."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numkong
import numpy as np

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.semantic_key import SemanticKey

__all__ = ["FAR", "KeyTable"]

FAR = -1.0
"""Similarity of a tombstone that has no key to compare."""

_LEVELS = 127
_FINER = 254
"""Steps that each level of a compared vector is divided into."""


class KeyTable:
    """The keys of one model over all tombstones.

    Keys are whole numbers, as tombstones hold them, and compared as such: products are the same on every machine, and a
    quarter of the bytes is read that floats would take, which is what comparing costs.

    Args:
        keys: Per tombstone its keys; those of other models count as none.
        model: Whose keys are compared.

    Raises:
        UsageError: keys of different dimensions.
    """

    def __init__(self, keys: Sequence[Sequence[SemanticKey]], model: str) -> None:
        rows: list[NDArray[np.int8]] = []
        owners: list[int] = []
        for number, mine in enumerate(keys):
            levels = [key.levels() for key in mine if key.embedder == model]
            rows += levels
            owners += [number] * len(levels)
        if len({row.size for row in rows}) > 1:
            raise UsageError(f"keys of model {model!r:.80} have different dimensions")
        self._levels = np.stack(rows) if rows else np.zeros((0, 0), np.int8)
        self._norms = np.linalg.norm(self._levels.astype(np.float32), axis=1)
        self._owners = np.asarray(owners, np.intp)
        self._stones = len(keys)
        self._one_key_each = owners == list(range(len(keys)))
        self.keyless = np.ones(len(keys), np.bool_)
        """Shape (tombstones,): no key that could be compared."""
        self.keyless[self._owners] = False
        self.keyless.flags.writeable = False

    @property
    def dimensions(self) -> int:
        """Dimensions of the keys; 0 where there are none."""
        return int(self._levels.shape[1])

    def similarity(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compare unit vectors with every tombstone.

        Args:
            vectors: Shape (texts, dimensions).

        Returns:
            Shape (texts, tombstones): the largest cosine over a tombstone's keys; FAR where it has none.

        Raises:
            UsageError: vectors of another dimension.
        """
        if not self._owners.size:
            return np.full((len(vectors), self._stones), FAR, np.float32)
        if vectors.shape[1] != self.dimensions:
            raise UsageError(f"vectors have {vectors.shape[1]} dimensions, the keys have {self.dimensions}")
        coarse, fine, scale = _split(vectors)
        products = np.asarray(numkong.dots_packed(np.concatenate([coarse, fine]), self._packed), np.float32)
        per_key = (products[: len(vectors)] * _FINER + products[len(vectors) :]) * scale / self._norms
        return per_key if self._one_key_each else np.stack([self.largest(values, FAR) for values in per_key])

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """The keys' directions, unit vectors, shape (keys, dimensions)."""
        return np.asarray(self._levels / self._norms[:, None], np.float32)

    @cached_property
    def _packed(self) -> numkong.PackedMatrix:
        return numkong.dots_pack(self._levels)

    def owned_by(self, stones: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Tell by key, in the order of `vectors`, whether it is of one of these tombstones (shape (tombstones,))."""
        return stones[self._owners]

    def largest(self, values: NDArray[np.float32], missing: float) -> NDArray[np.float32]:
        """Return by tombstone the largest of its keys' values, shape (tombstones,).

        Args:
            values: By key, in the order of `vectors`.
            missing: What stands for a tombstone without a key.
        """
        best = np.full(self._stones, -np.inf, np.float32)
        np.maximum.at(best, self._owners, values)
        best[self.keyless] = missing
        return best


def _split(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.float32]]:
    """Write vectors as whole numbers of two signed bytes each: `(coarse * _FINER + fine) * scale`.

    What is lost of a component is 1/64,000 of the vector's largest at most.
    """
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scale = np.maximum(largest, np.finfo(np.float32).tiny) / (_LEVELS * _FINER)
    steps = np.rint(vectors / scale)
    coarse = np.rint(steps / _FINER)
    return coarse.astype(np.int8), (steps - coarse * _FINER).astype(np.int8), scale
