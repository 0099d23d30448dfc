"""What the set search is told, and the thresholds that several of its files share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory_audit.attribution.calibration import Calibration

__all__ = [
    "CONTROL_MEMORIES", "GATE_REPLAYS", "MOST_POINTS", "TYPICAL_REPLAYS", "WEAK_NATS", "SearchSettings",
]  # fmt: skip

GATE_REPLAYS = 2
"""Of each event, before anything else: with the whole store, and with no memory."""

TYPICAL_REPLAYS = 16
"""Of each event whose harm is reproduced, in a search without a budget: the median of 90 committed runs (MINJA, public
stores, `benchmarks/results`) is 15, and eight in ten of them took 7 to 30."""

WEAK_NATS = 1.0
"""Evidence that counts for something: from it a memory is suspected where harm stays, and what exceeds it adds up."""

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

    calibration: Calibration | None = None
    """Clean incidents of this setting, where these are known."""

    significance: float = 0.02
    """Most clean incidents in which a memory may be attributed, as a share."""

    @property
    def is_calibrated(self) -> bool:
        """The incidents are enough for the significance."""
        return self.calibration is not None and not math.isinf(self.calibration.threshold_nats(self.significance))

    def threshold_nats(self, queries: int = 1) -> float:
        """Return the evidence from which the harm is attributed to a memory that was tried at so many unlike queries.

        Calibrated, it is what exceeds clean incidents, and no less than `WEAK_NATS`, below which nothing is taken.
        """
        if self.calibration is None or not self.is_calibrated:
            return self.attribution_nats
        beyond = math.nextafter(self.calibration.threshold_nats(self.significance, queries), math.inf)
        return max(beyond, WEAK_NATS)
