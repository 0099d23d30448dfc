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

from memory_audit.guard.blocks.block_list import Lockout
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


class _ExactLockout(Lockout):
    """Matches equal signatures only."""

    def matching(self, signature: HazardSignature) -> NDArray[np.bool_]:
        """See `Lockout.matching`."""
        held = (stone.lock.signature for stone in self.stones)
        return np.asarray(
            [one is not None and matches(signature, one) and signature.labels == one.labels for one in held], np.bool_
        )


def as_compared(lockout: Lockout, mode: Mode) -> tuple[Lockout, GuardMode]:
    """Return tombstones that keep what a mode compares, and the guard's mode that then compares it."""
    if mode in get_args(GuardMode):
        return lockout, mode
    kept = {
        "acts": (),
        **({} if mode in {"key", "containment+key"} else {"keys": ()}),
        **({"signature": None} if mode == "key" else {}),
    }
    kind = _ExactLockout if mode == "exact" else Lockout
    return kind(
        tenant=lockout.tenant, salt=lockout.salt, embedder=lockout.embedder, act_model=lockout.act_model,
        version=lockout.version, stones=[replace(stone, lock=replace(stone.lock, **kept)) for stone in lockout.stones],
    ), "act" if mode == "key" else "act+labels"  # fmt: skip
