"""Embeddings of a run by the digests of their texts: on disk, and in memory only as many as are soon told.

A store of a million memories has three million of them, of which a search wants one kind at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Vectors"]

HELD_BYTES = 512 << 20
"""Of embeddings held in memory: those of a hundred thousand memories. Of more none is held: they are read again."""


@dataclass(frozen=True, slots=True)
class _Shard:
    start: int
    held: NDArray[np.float32] | None
    read: Callable[[], NDArray[np.float32]]


class Vectors:
    """Embeddings, found by key."""

    def __init__(self) -> None:
        self._shards: list[_Shard] = []
        self._keys = pa.chunked_array([], pa.string())
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: pa.Array, vectors: NDArray[np.float32], read: Callable[[], NDArray[np.float32]]) -> None:
        """Take a shard: its keys, shape (n,), its vectors, shape (n, dimensions), and how they are read once more."""
        self._bytes += vectors.nbytes
        self._shards.append(_Shard(len(self._keys), vectors, read))
        if self._bytes > HELD_BYTES:
            self._shards = [replace(shard, held=None) for shard in self._shards]
        self._keys = pa.chunked_array([*self._keys.chunks, keys])

    def missing(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Return which of these keys, by their places, are not known."""
        found = pc.is_in(pa.array(keys, pa.string()), value_set=self._keys)
        return np.flatnonzero(~found.to_numpy(zero_copy_only=False))

    def of(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of known keys, at least one, shape (keys, dimensions); KeyError where one is unknown."""
        found = pc.index_in(pa.array(keys, pa.string()), value_set=self._keys)
        if found.null_count:
            raise KeyError(keys[int(np.argmax(found.is_null().to_numpy(zero_copy_only=False)))])
        places = found.to_numpy().astype(np.int64)
        starts = np.array([shard.start for shard in self._shards])
        shards = np.searchsorted(starts, places, side="right") - 1
        result: NDArray[np.float32] | None = None
        order = np.argsort(shards, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1):
            shard = self._shards[shards[rows[0]]]
            vectors = shard.read() if shard.held is None else shard.held
            if result is None:
                result = np.empty((len(places), vectors.shape[1]), np.float32)
            result[rows] = vectors[places[rows] - shard.start]
        if result is None:
            raise KeyError("no text was named")
        return result
