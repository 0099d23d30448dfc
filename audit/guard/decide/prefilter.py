"""A look at the keys: which texts of a write a model has to read, and for which tombstones. No model is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.guard.decide.guard_decision import GuardDecision

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_audit.guard.decide.rules import ReadScope, Rules
    from memory_audit.guard.decide.write import Texts

__all__ = ["ToRead", "prefilter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToRead:
    """What a model has to read of a write, nearest to a key first; arrays have shape (texts, tombstones)."""

    texts: tuple[str, ...]
    within_read: NDArray[np.bool_]
    """Which tombstones each of them may be meant by."""

    within_refuse: NDArray[np.bool_]
    """Those of them whose keys are near, or cannot tell."""

    similarity: NDArray[np.float32]
    nearest: float
    """Largest cosine of any text of the write with any key."""

    left_out: int
    """Texts beyond the most that are read."""

    def nearest_of(self, hits: NDArray[np.bool_]) -> int:
        """Return which of the tombstones that match (shape (tombstones,)) is nearest: the one to name."""
        return int(np.where(hits, self.similarity.max(axis=0), np.float32(-2)).argmax())


def prefilter(rules: Rules, scope: ReadScope, texts: Texts, similarity: NDArray[np.float32]) -> ToRead | GuardDecision:
    """Return what has to be read of a write, or the decision where nothing has.

    Args:
        rules: The tombstones and the settings.
        scope: What is read in this round.
        texts: Of the write.
        similarity: Their cosines with the tombstones' keys, shape (texts, tombstones).
    """
    block_list, settings = rules.block_list, rules.settings
    if not len(block_list):
        return GuardDecision(allowed=True, reason="no tombstones")
    if not texts.forms:
        return GuardDecision(allowed=True, reason="far from every tombstone")
    nearest = float(similarity.max())
    if nearest >= settings.key_alone_above:
        alone = np.where(scope.key_only, similarity, np.float32(-1))
        place = int(alone.argmax())
        cosine = float(alone.flat[place])
        if cosine >= settings.key_alone_above:
            stone = block_list.stones[place % len(block_list)]
            return GuardDecision(allowed=False, reason="key alone", tombstone=stone, similarity=cosine)
    far = GuardDecision(allowed=True, reason="far from every tombstone", similarity=nearest)
    comparable = ~scope.not_comparable
    if not comparable.any():
        return far
    # What is near a tombstone that cannot be compared would take the place of what another may be meant by.
    nearest_of = np.where(comparable, similarity, np.float32(-2)).max(axis=1)
    always = block_list.keys.keyless & comparable  # what this embedder cannot compare: what is read alone can speak
    candidates = np.arange(len(texts.forms))
    if not always.any():
        candidates = candidates[(nearest_of >= scope.above) | texts.foreign]
        if not candidates.size:
            return far
    asked = candidates[np.argsort(-nearest_of[candidates], kind="stable")][: scope.most]
    rows = similarity[asked]
    anyway = always | texts.foreign[asked, None]
    return ToRead(
        texts=tuple(texts.forms[number] for number in asked), similarity=rows, nearest=nearest,
        within_read=((rows >= scope.above) | anyway) & comparable,
        within_refuse=((rows >= settings.look_above) | anyway) & comparable,
        left_out=len(candidates) - len(asked),
    )  # fmt: skip
