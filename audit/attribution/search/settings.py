"""What the set search is told, and the thresholds that several of its files share."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONTROL_MEMORIES", "MOST_POINTS", "WEAK_NATS", "SearchSettings"]

WEAK_NATS = 1.0
"""Credit from which a memory is taken into S where harm stays. Below it none is, whatever stays."""

CONTROL_MEMORIES = 3
"""Memories that an event did not use, shown alone: what any memory would do. With fewer at hand none is shown."""

MOST_POINTS = 8
"""Most divergence points taken per event: half as many where those so far are format effects or attribute nothing, all
where what they attribute turns out not to be the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How the search decides. Thresholds are in nats of log-odds of the harmful continuation."""

    attribution_nats: float
    """A memory that alone raises the log-odds by this much (odds 7 : 1) at every point is attributed without further
    question. Calibrated on the demo's corpus: seven of eight poisons rise by 2.5 or more, no benign memory by 0.6.
    The default is `memory_audit.config`'s."""

    consistent_extra_nats: float = 0.5
    """How much more evidence a memory needs that is more consistent than the median one."""

    points: int = 2
    """Divergence points measured per event: the second tells the harm from the wording."""

    screen_from: int = 12
    """Memories yet to be measured from which they are shown in groups of about their square root first."""

    samples: int = 0
    """Sampled replays per question where no odds can be had; 0 takes one harm score there."""

    max_rounds: int = 256
    """Rounds after which open events are given up as `not cleared`."""

    max_replays: int | None = None
    """Budget on replays planned, each sample one; None is no budget."""
