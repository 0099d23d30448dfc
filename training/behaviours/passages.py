"""Passages of many texts as one matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from memory_audit.models.activations.behaviour_reader import passage_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Batch", "attended", "batch_of", "kept"]


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


def batch_of(texts: Sequence[torch.Tensor]) -> Batch:
    """Return the passages of texts as the reader sees them; gradients flow through.

    Args:
        texts: Standardised states of each text's tokens, shape (tokens, hidden).
    """
    slices = [passage_slices(len(text)) for text in texts]
    starts = np.cumsum([0, *(len(text) for text in texts)])
    spans = [(start + part.start, part.stop - part.start)
             for start, parts in zip(starts, slices, strict=False) for part in parts]  # fmt: skip
    sizes = np.array([size for _, size in spans])
    rows = np.repeat([start for start, _ in spans], sizes) + _places(sizes)
    states = torch.cat(list(texts))
    device = states.device
    owner = torch.from_numpy(np.repeat(np.arange(len(spans)), sizes)).to(device)
    summed = torch.zeros((len(spans), states.shape[1]), device=device)
    summed = summed.index_add(0, owner, states[torch.from_numpy(rows).to(device)])
    means = summed / torch.from_numpy(sizes).to(device)[:, None]
    lengths = np.array([len(parts) for parts in slices])
    return Batch(
        states=means, place=torch.from_numpy(_places(lengths)).to(device), texts=len(lengths),
        owner=torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)).to(device), longest=int(lengths.max()),
    )  # fmt: skip


def _places(lengths: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def kept(batch: Batch, width: int, dropped: float) -> torch.Tensor:
    """Return what to multiply passages with to leave a share out at random, the same in all passages of a text.

    Shape (passages, width): 0, or what keeps the mean.
    """
    return ((torch.rand(batch.texts, width, device=batch.owner.device) > dropped).float() / (1 - dropped))[batch.owner]


def attended(sought: torch.Tensor, said: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Pool what passages say where heads look, both of shape (passages, heads), into shape (texts,)."""
    blank = torch.full((batch.texts, batch.longest, sought.shape[1]), -1e9, device=sought.device)
    attention = blank.index_put((batch.owner, batch.place), sought).softmax(dim=1)[batch.owner, batch.place]
    return torch.zeros(batch.texts, device=said.device).index_add(0, batch.owner, (attention * said).sum(1))
