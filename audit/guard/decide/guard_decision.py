"""What the guard says of one write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from memory_audit.guard.blocks.tombstone import HazardTombstone

__all__ = ["FAILURES", "GuardDecision", "GuardReason"]

GuardReason = Literal[
    "no tombstones",
    "far from every tombstone",
    "no hazard",
    "hazards differ",
    "another behaviour",
    "removed id",
    "same words",
    "hazards match",
    "behaviour restated",
    "behaviour and hazard",
    "key alone",
    "writer distrusted",
    "removal attacked",
    "model failed",
    "embedder failed",
    "too long",
]
"""Why. The first five allow; the last three do what the policy for failures says, and the decision says which; all
others refuse."""

FAILURES: frozenset[str] = frozenset({"model failed", "embedder failed", "too long"})
"""Reasons that are no judgement of the write."""

_PARAPHRASED: frozenset[str] = frozenset({"hazards match", "behaviour restated", "behaviour and hazard", "key alone"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardDecision:
    """The guard's word on one write."""

    allowed: bool
    reason: GuardReason
    tombstone: HazardTombstone | None = None
    """What refuses it; None where it is allowed, or refused by the policy for failures, or for its writer."""

    labels: frozenset[str] | None = None
    """The write's hazards; None where no model was asked: unknown is not none."""

    similarity: float | None = None
    """Largest cosine with a tombstone's key; None where none was computed."""

    restated_nats: float | None = None
    """Largest log-odds that the write restates a removed behaviour; None where no behaviour was read."""

    hazard_nats: float | None = None
    """How far its likeliest hazard lies above the threshold, below 0 where none holds; None where that was not told."""

    fused_nats: float | None = None
    """Log-odds of behaviour and hazard together; None where the behaviour left no doubt, or they are not weighed
    together."""

    with_earlier: tuple[str, ...] = ()
    """Entry ids of the writer's earlier writes that make a behaviour together with this one; they are in the store."""

    detail: str = ""
    """One line for people: which failure, which policy."""

    @property
    def failed(self) -> bool:
        """It is no judgement of the write: the policy for failures decided."""
        return self.reason in FAILURES

    @property
    def paraphrased(self) -> bool:
        """The write is refused for what it says.

        A removed id, or the same words again, is also what an agent sends that writes its old memories once more.
        """
        return self.reason in _PARAPHRASED

    @property
    def too_long(self) -> bool:
        """It is none because the write has more texts than are read."""
        return self.reason == "too long"
