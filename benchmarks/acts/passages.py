"""Passages of many texts as one matrix, and batches of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from models.act_reader import passage_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Batch", "Passages", "attended", "batch_of", "kept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Passages of some texts."""

    states: torch.Tensor
    """Shape (passages, hidden)."""

    owner: torch.Tensor
    """Shape (passages,): number of the text in the batch."""

    place: torch.Tensor
    """Shape (passages,): number of the passage in its text."""

    texts: int
    longest: int
    """Passages of the longest text."""


class Passages:
    """Passages of texts.

    Args:
        texts: Standardised states of each text's passages, shape (passages, hidden).
    """

    def __init__(self, texts: Sequence[NDArray[np.float32]]) -> None:
        self._lengths = np.array([len(rows) for rows in texts])
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._states = torch.from_numpy(np.concatenate(texts).astype(np.float32))

    def batch(self, chosen: NDArray[np.intp]) -> Batch:
        """Return the passages of some texts."""
        lengths = self._lengths[chosen]
        rows = np.repeat(self._starts[chosen], lengths) + _places(lengths)
        return _batch(self._states[torch.from_numpy(rows)], lengths)


def batch_of(texts: Sequence[torch.Tensor]) -> Batch:
    """Return the passages of texts as the reader sees them; gradients flow through.

    Args:
        texts: Standardised states of each text's tokens, shape (tokens, hidden).
    """
    slices = [passage_slices(len(text)) for text in texts]
    states = [text[tokens].mean(0) for text, parts in zip(texts, slices, strict=True) for tokens in parts]
    return _batch(torch.stack(states), np.array([len(parts) for parts in slices]))


def _batch(states: torch.Tensor, lengths: NDArray[np.intp]) -> Batch:
    """Return passages that lie in the order of their texts, which have so many each."""
    return Batch(
        states=states, place=torch.from_numpy(_places(lengths)), texts=len(lengths),
        owner=torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)), longest=int(lengths.max()),
    )  # fmt: skip


def _places(lengths: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.concatenate([np.arange(length) for length in lengths])


def kept(batch: Batch, width: int, dropped: float) -> torch.Tensor:
    """Return what to multiply passages with to leave a share out at random, the same in all passages of a text.

    Shape (passages, width): 0, or what keeps the mean.
    """
    return ((torch.rand(batch.texts, width) > dropped).float() / (1 - dropped))[batch.owner]


def attended(sought: torch.Tensor, said: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Pool what passages say where heads look, both of shape (passages, heads), into shape (texts,)."""
    blank = torch.full((batch.texts, batch.longest, sought.shape[1]), -1e9)
    attention = blank.index_put((batch.owner, batch.place), sought).softmax(dim=1)[batch.owner, batch.place]
    return torch.zeros(batch.texts).index_add(0, batch.owner, (attention * said).sum(1))
