"""What writes are held against: a block list, what of each tombstone can be compared, and from where it refuses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.guard.decide.guard_decision import GuardDecision

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.decide.guard_decision import GuardReason
    from memory_audit.guard.decide.settings import GuardSettings
    from memory_audit.guard.decide.thresholds import Thresholds

__all__ = ["Doubt", "ReadScope", "Rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadScope:
    """What one round of reading is about; arrays have shape (tombstones,)."""

    not_comparable: NDArray[np.bool_]
    """Tombstones that nothing read in this round can match."""

    key_only: NDArray[np.bool_]
    """Those for which a near key refuses alone, since nothing of theirs can be read."""

    above: float
    """Cosine with a key from which a text is read."""

    most: int
    """Texts of one write that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What the behaviours of a write say, where that neither refuses it nor lets it through."""

    odds: NDArray[np.float32]
    """Log-odds by tombstone that its behaviour is restated, from `decide_behaviours`."""

    hazard_slope: float
    """Nats for a nat of hazard."""

    threshold_nats: float
    """Log-odds of both together from which the write is refused."""

    def fused(self, hazard_nats: float, within_read: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return the log-odds with a hazard that its reader found, by tombstone; -inf for those not in doubt."""
        doubted = within_read & np.isfinite(self.odds)
        return np.where(doubted, self.odds + np.float32(self.hazard_slope * hazard_nats), np.float32(-np.inf))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that hold while a block list is in force."""

    block_list: BlockList
    settings: GuardSettings
    thresholds: Thresholds
    behaviours: ReadScope
    """The first round, of every write."""

    hazards: ReadScope | None
    """The second round, of writes that the first leaves in doubt; None in mode `behaviour`."""

    taxonomies: tuple[str, ...]
    """Digests of those in which hazards are read."""

    fused: bool
    """In doubt, behaviour and hazard are weighed together."""

    @classmethod
    def of(
        cls,
        block_list: BlockList,
        settings: GuardSettings,
        thresholds: Thresholds,
        *,
        taxonomies: Collection[str] = (),
        calibrated_for: str | None = None,
    ) -> Rules:
        """Return the rules of a block list.

        Args:
            block_list: The tombstones.
            settings: How to decide.
            thresholds: Of the reader of behaviours.
            taxonomies: Digests of those whose labels can be read.
            calibrated_for: The one in which hazards are told in nats; then they speak, with a behaviour, also where a
                tombstone has no labels.
        """
        unread, unlabelled = block_list.behaviours.keyless, block_list.unlabelled(taxonomies)
        fused = math.isfinite(thresholds.fused_nats) and calibrated_for in taxonomies
        hazards, used = None, frozenset[str]()
        if settings.mode == "behaviour+hazards":
            hazards = ReadScope(
                not_comparable=unlabelled & unread if fused else unlabelled,
                key_only=np.zeros(len(block_list), np.bool_), above=settings.look_above, most=settings.asked_at_most,
            )  # fmt: skip
            used = block_list.taxonomies.intersection(taxonomies)
            if fused and calibrated_for:
                used |= {calibrated_for}
        behaviours = ReadScope(
            not_comparable=unread, key_only=unread & unlabelled if hazards else unread,
            above=min(settings.read_above, settings.look_above), most=settings.read_at_most,
        )  # fmt: skip
        return cls(
            block_list=block_list, settings=settings, thresholds=thresholds, behaviours=behaviours, hazards=hazards,
            taxonomies=tuple(sorted(used)), fused=fused,
        )  # fmt: skip

    @property
    def silent(self) -> NDArray[np.bool_]:
        """Tombstones that keep out their own words and no paraphrase, shape (tombstones,)."""
        mute = self.block_list.keys.keyless & self.behaviours.not_comparable
        return mute if self.hazards is None else mute & self.hazards.not_comparable

    @property
    def most_read(self) -> list[int]:
        """Texts of one write that are read in a round, by round, the largest number first."""
        return sorted({scope.most for scope in (self.behaviours, self.hazards) if scope is not None}, reverse=True)

    def hazards_of(self, odds: NDArray[np.float32] | None) -> ReadScope:
        """Return the second round of a write, without the tombstones whose behaviour it is known not to restate.

        Args:
            odds: Log-odds that it does, by tombstone, NaN where one has no behaviour; None where nobody knows.
        """
        if self.hazards is None:
            raise ValueError("no hazards are read")
        if odds is None:
            return self.hazards
        safe = odds < self.thresholds.doubt_nats
        return replace(self.hazards, not_comparable=self.hazards.not_comparable | safe)

    def doubt(self, odds: NDArray[np.float32] | None, *, joined: bool) -> Doubt | None:
        """Return what behaviours say, likewise, where that is weighed together with hazards.

        Args:
            odds: As of `hazards_of`.
            joined: Of several writes, each of which was let in.
        """
        if odds is None or not self.fused:
            return None
        thresholds = self.thresholds
        least = max(thresholds.fused_nats, thresholds.alone_nats) if joined else thresholds.fused_nats
        return Doubt(odds=odds, hazard_slope=thresholds.hazard_slope, threshold_nats=least)

    def failure(self, reason: GuardReason, why: str, similarity: float | None = None) -> GuardDecision:
        """Return what the policy for failures makes of a write that could not be judged."""
        policy = self.settings.on_failure
        return GuardDecision(
            allowed=policy == "open", reason=reason, similarity=similarity,
            detail=f"{why}; {'let through' if policy == 'open' else 'refused'} by policy ({policy})",
        )  # fmt: skip
