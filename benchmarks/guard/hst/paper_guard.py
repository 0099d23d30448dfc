"""The paper's guard, beside which this project's is measured: labels alone, keys alone, or both.

    exact             the write's labels are a tombstone's
    containment       they contain a tombstone's, or are among them (eq. 3)
    containment+key   eq. 3, where the write is near a tombstone's semantic key
    key               the key alone

Each is `WriteGuard` on tombstones that keep no more than this way compares. Without keys every write is read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from memory_audit.guard.blocks.block_list import BlockList
from memory_audit.guard.blocks.hazard import matches
from memory_audit.guard.decide.settings import GuardMode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_audit.guard.blocks.hazard import HazardSignature

__all__ = ["MODES", "PAPER_MODES", "Mode", "as_compared"]

PaperMode = Literal["exact", "containment", "containment+key", "key"]
Mode = GuardMode | PaperMode
PAPER_MODES: tuple[PaperMode, ...] = get_args(PaperMode)
MODES: tuple[Mode, ...] = (*get_args(GuardMode), *PAPER_MODES)


class _ExactBlockList(BlockList):
    """Matches equal signatures only."""

    def matching(self, signature: HazardSignature) -> NDArray[np.bool_]:
        """See `BlockList.matching`."""
        held = (stone.block.signature for stone in self.stones)
        return np.asarray(
            [one is not None and matches(signature, one) and signature.labels == one.labels for one in held], np.bool_
        )


def as_compared(block_list: BlockList, mode: Mode) -> tuple[BlockList, GuardMode]:
    """Return tombstones that keep what a mode compares, and the guard's mode that then compares it."""
    if mode in {"behaviour", "behaviour+hazards"}:
        return block_list, mode
    with_keys, with_labels = mode in {"key", "containment+key"}, mode != "key"
    blocks = (stone.block for stone in block_list.stones)
    kept = [
        replace(
            block, behaviours=(), keys=block.keys if with_keys else (),
            signature=block.signature if with_labels else None,
        )
        for block in blocks
    ]  # fmt: skip
    kind = _ExactBlockList if mode == "exact" else BlockList
    return kind(
        tenant=block_list.tenant,
        salt=block_list.salt,
        embedder=block_list.embedder,
        behaviour_model=block_list.behaviour_model,
        version=block_list.version,
        stones=[replace(stone, block=block) for stone, block in zip(block_list.stones, kept, strict=True)],
    ), "behaviour" if mode == "key" else "behaviour+hazards"
