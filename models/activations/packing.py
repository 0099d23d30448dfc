"""Texts as rows of tokens: one in each, or many behind one another, none of which sees another.

Rows of one text leave the rest to padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BOTH_WAYS", "CAUSAL", "Rows"]

CAUSAL, BOTH_WAYS = "full_attention", "both_ways"
"""Kinds of attention, by which the backbone's layers find their masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows; all tensors have the shape (rows, tokens)."""

    ids: torch.Tensor
    place: torch.Tensor
    """Of a token in its text, from 0."""

    text: torch.Tensor
    """Number of a token's text in its row, from 1; 0 for padding, which comes last."""

    read: torch.Tensor
    """Whether a token's state is wanted."""

    opening: int
    """Tokens that each text begins with, which see nothing of it."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[Sequence[int]]], opening: int, device: str) -> Rows:
        """Lay texts out.

        Args:
            rows: Of texts, each its tokens with the opening in front.
            opening: How many tokens that has. They are not read, but for the last where nothing follows.
            device: As torch names it.
        """
        width = max(sum(map(len, row)) for row in rows)
        if device != "cpu":
            width = -(-width // 8) * 8  # as attention kernels want their masks
        ids, place, text = (torch.zeros((len(rows), width), dtype=torch.long) for _ in range(3))
        read = torch.zeros_like(ids, dtype=torch.bool)
        for number, row in enumerate(rows):
            start = 0
            for count, tokens in enumerate(row, 1):
                end = start + len(tokens)
                ids[number, start:end] = torch.tensor(tokens)
                place[number, start:end] = torch.arange(len(tokens))
                text[number, start:end] = count
                read[number, start + min(opening, len(tokens) - 1) : end] = True
                start = end
        return cls(
            ids=ids.to(device), place=place.to(device), text=text.to(device), read=read.to(device), opening=opening
        )

    def masks(self) -> dict[str, torch.Tensor]:
        """Return for each kind of attention what each token sees, shape (rows, 1, tokens, tokens): of its own text."""
        width = self.text.shape[1]
        before = torch.ones((width, width), dtype=torch.bool, device=self.text.device).tril()
        same = self.text[:, :, None] == self.text[:, None]
        said = (self.place >= self.opening)[:, :, None]
        return {CAUSAL: (same & before)[:, None], BOTH_WAYS: (same & (before | said))[:, None]}
