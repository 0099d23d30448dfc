"""Calibrated evidence: how seldom does a clean incident say as much against any of its memories?

A *clean incident* is an answer that memory made wrong though nobody planted anything: wrong with memories, right with
none. Of each the largest evidence against any candidate is kept, M_i. A real incident in which no memory is planted is
one more of them, if incidents are exchangeable; so its largest evidence has each of the C + 1 ranks with equal chance,
and these hold in any incident and whatever the dependence within one (conformal p-values: Vovk et al.; Bates et al.,
arXiv 2104.08279; maxima over a family: Westfall & Young):

    t_α = the ⌈(1 - α)(C + 1)⌉-th smallest M_i; infinite where C < 1/α - 1: 19 for 5 %, 49 for 2 %, 99 for 1 %
    p(s) = (1 + #{M_i ≥ s}) / (C + 1), and p(s) ≤ α just where s > t_α

So a benign memory is convicted in at most a share α of incidents. Copies of a memory have one evidence, and a maximum
counts them once; events of one query are one incident.

A memory that is retrieved at J unlike queries has J chances. It is tried at α/J at each (Bonferroni: no independence
is asked of events that share a store), as far as C can tell: where C < J/α - 1 at α/J' with the largest J' that it can,
1 at least. The p of a memory is J times its least, whatever J' was. The promise for each incident holds either way, as
no threshold is below t_α. Evidence too weak at each event is not added up: of sums no clean incident was seen.

What is assumed, and not checked: calibration incidents are clean, and like the real ones in model, agent and kind of
harm (`memory_audit.calibration_file` names these).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

__all__ = ["EVIDENCE_VERSION", "Calibration", "incidents_needed"]

EVIDENCE_VERSION = 1
"""Of what the search measures as evidence: another where points, controls or the baseline change what a number means.
A calibration of another version does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The largest evidence of each clean incident."""

    largest_nats: tuple[float, ...]
    """M_i, sorted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "largest_nats", tuple(sorted(self.largest_nats)))

    def __len__(self) -> int:
        """C: clean incidents."""
        return len(self.largest_nats)

    def threshold_nats(self, level: float, queries: int = 1) -> float:
        """Evidence that a memory must exceed.

        Args:
            level: α, above 0.
            queries: J, at how many unlike queries the memory is tried.

        Returns:
            t at level α/J, or at the least level that C can tell; infinite where C cannot even tell α.
        """
        ranks = len(self) + 1
        may_reach = _floor(level * ranks)
        if may_reach < 1:
            return math.inf
        below = ranks - max(_floor(level * ranks / max(queries, 1)), 1)
        return self.largest_nats[below - 1] if below else -math.inf

    def p_value(self, nats: float, queries: int = 1) -> float:
        """How likely a clean incident says as much, over J unlike queries: 1/(C + 1) to 1."""
        reached = len(self) - bisect_left(self.largest_nats, nats)
        return min(1.0, max(queries, 1) * (1 + reached) / (len(self) + 1))


def incidents_needed(level: float) -> int:
    """Return how many clean incidents a level needs: the least C with C ≥ 1/α - 1."""
    needed = math.ceil(1 / level) - 1
    return needed if _floor(level * (needed + 1)) else needed + 1


def _floor(value: float) -> int:
    """Round down; what a float misses of a whole number by its last bits is that number: 0.02 times 50 is 1."""
    nearest = round(value)
    return nearest if math.isclose(value, nearest, rel_tol=1e-9) else math.floor(value)
