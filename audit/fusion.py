"""Fuse influence and inconsistency into one ranking and choose how much of it to remove (paper eq. 10, Algorithm 1).

Normalisation, stated: min-max over one tenant, (v - min) / (max - min); where all values are equal every one becomes 0,
because a signal that tells no entries apart ranks none. It may be evidence all the same, and so may the least value,
which becomes 0 too: whether there is any against an entry is said of the raw values (`FusedScore.evident`). Algorithm 1
starts every CMIS at 0, so an entry that no replay left out counts as 0 here, but its score stays None in what is
reported. A negative CMIS (removal made the harm worse) also counts as 0: it must not shrink the scale of the positive
ones, and it still ranks last among equals.

Nothing here replays: `PrefixSearch` says which prefix of the ranking to try next and is told what came of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEFAULT_ALPHA", "FusedScore", "PrefixSearch", "choose_budget", "fuse", "normalise"]

DEFAULT_ALPHA = 0.6
"""Weight of CMIS in DS: the best of 0.2 ... 0.8 in the paper's table 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedScore:
    """One entry's place in the ranking."""

    entry_id: str
    cmis: float | None
    """As given; None where no replay left the entry out."""

    cas: float | None
    cmis_normalised: float
    cas_normalised: float
    ds: float
    """alpha x cmis_normalised + (1 - alpha) x cas_normalised, in [0, 1]."""

    evident: bool
    """CMIS or CAS, as given, is above 0, and counts in DS."""

    rank: int
    """1 is the most suspicious."""


def normalise(values: Sequence[float | None]) -> list[float]:
    """Scale to [0, 1] by min-max; None counts as 0; all equal gives all 0.

    Raises:
        UsageError: a value is NaN or infinite.
    """
    known = [0.0 if value is None else float(value) for value in values]
    for position, value in enumerate(known):
        if not math.isfinite(value):
            raise UsageError(f"score {position} is {value}, expected a finite number; check the harm scorer")
    if not known:
        return []
    low, high = min(known), max(known)
    if low == high:
        return [0.0] * len(known)
    halves = high / 2 - low / 2  # halved: max - min of two finite numbers may overflow
    if halves == 0:  # the smallest subnormal number
        return [float(value == high) for value in known]
    return [min((value / 2 - low / 2) / halves, 1.0) for value in known]


def fuse(
    entry_ids: Sequence[str],
    cmis: Sequence[float | None],
    cas: Sequence[float | None],
    *,
    alpha: float = DEFAULT_ALPHA,
) -> tuple[FusedScore, ...]:
    """Rank one tenant's entries by DS; ties by CMIS, then by entry id.

    Args:
        entry_ids: All entries of the tenant, each once.
        cmis: Influence summed over events (eq. 7), None where unknown; as long as `entry_ids`.
        cas: Anomaly (eq. 8), None where unknown; as long as `entry_ids`.
        alpha: Weight of CMIS, 0 ... 1.

    Raises:
        UsageError: alpha is outside [0, 1], the lengths differ, an id comes twice, or a score is not finite.
    """
    if not 0 <= alpha <= 1:
        raise UsageError(f"alpha is {alpha}, expected a number from 0 to 1")
    if not len(entry_ids) == len(cmis) == len(cas):
        raise UsageError(f"{len(entry_ids)} entries with {len(cmis)} CMIS and {len(cas)} CAS values: lengths differ")
    if len(set(entry_ids)) != len(entry_ids):
        raise UsageError("an entry id comes twice in the ranking")
    cmis_normalised = normalise([value if value is None or not value < 0 else 0.0 for value in cmis])
    cas_normalised = normalise(cas)

    def fused(influence: float, inconsistency: float) -> float:
        return alpha * influence + (1 - alpha) * inconsistency

    rows = sorted(
        zip(entry_ids, cmis, cas, cmis_normalised, cas_normalised, strict=True),
        key=lambda row: (-fused(row[3], row[4]), -(row[1] or 0.0), row[0]),
    )
    return tuple(
        FusedScore(
            entry_id=entry_id,
            cmis=raw_influence,
            cas=raw_inconsistency,
            cmis_normalised=influence,
            cas_normalised=inconsistency,
            ds=fused(influence, inconsistency),
            evident=(alpha > 0 and (raw_influence or 0.0) > 0) or (alpha < 1 and (raw_inconsistency or 0.0) > 0),
            rank=rank,
        )
        for rank, (entry_id, raw_influence, raw_inconsistency, influence, inconsistency) in enumerate(rows, start=1)
    )


def choose_budget(ranking: Sequence[FusedScore], budget: int) -> tuple[str, ...]:
    """Return the first `budget` entry ids of the ranking, leaving out entries with no evidence at all.

    Raises:
        UsageError: the budget is negative.
    """
    if budget < 0:
        raise UsageError(f"budget is {budget}, expected 0 or more entries")
    return tuple(score.entry_id for score in ranking[:budget] if score.evident)


class PrefixSearch:
    """Find S as the smallest prefix of a ranking whose removal ends the harm, by galloping, then bisection.

        search = PrefixSearch(limit=len(ranking))
        while (size := search.proposal()) is not None:
            search.record(size, harm=replay_without(ranking[:size]))
        removed = ranking[: search.smallest or 0]

    It tries 1, 2, 4, 8 ... and `limit`, then bisects between the last size that left harm and the first that did not:
    about 2 log2(size) replays of the events. It assumes monotonicity (removing more never brings harm back). That may
    fail, since retrieval pulls in the next memory in line; two things hold even then: `smallest` itself was replayed
    and left no harm, and `smallest - 1` was replayed and left some (or is 0, the store as it is). Where the assumption
    fails, a still smaller prefix may have been passed over; a larger one is never returned untested.
    """

    def __init__(self, limit: int) -> None:
        """Search prefixes of 1 ... limit entries.

        Raises:
            UsageError: the limit is negative.
        """
        if limit < 0:
            raise UsageError(f"prefix limit is {limit}, expected 0 or more entries")
        self._limit = limit
        self._harmful = 0
        """Largest size below `smallest` known to leave harm; 0 is the store as it is."""

        self.smallest: int | None = None
        """The answer once `proposal` is None; None where no tested prefix ends the harm."""

    def proposal(self) -> int | None:
        """Return the next prefix size to replay, or None when the search is over."""
        if self.smallest is None:
            return None if self._harmful >= self._limit else min(max(2 * self._harmful, 1), self._limit)
        return None if self.smallest - self._harmful <= 1 else (self._harmful + self.smallest) // 2

    def record(self, size: int, *, harm: bool) -> None:
        """Take in whether harm is left when the first `size` entries are removed.

        Raises:
            UsageError: the size is not the one proposed.
        """
        if size != self.proposal():
            raise UsageError(f"prefix {size} was replayed, but {self.proposal()} was proposed")
        if harm:
            self._harmful = size
        else:
            self.smallest = size
