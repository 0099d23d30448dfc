r"""From outcomes to per-memory influence: CMIS (eq. 7), graded evidence, and the credit rule for sets.

Credit rule. For one harmful event let v(C) be the log-odds of the harmful continuation with context C, R* the retrieved
memories, and for a memory m in R*

    sufficiency  s(m) = v({m}) - v({})          what m does alone (keep one)
    necessity    n(m) = v(R*) - v(R* \\ {m})     what is lost without m (leave one out, retrieval recomputed)
    credit       c(m) = (max(s, 0) + max(n, 0)) / 2

These are the first and the last term of m's Shapley value, the two coalition sizes that need no sampling. It follows
that a memory without effect gets 0; that equal copies get equal credit, since no term depends on their names; that a
redundant copy, whose n is near 0, keeps half its s and cannot hide behind the other copies; and that a benign copy of
a poison's question gets nothing, since alone it does not bring the harm on. Over events credits are summed, as
Algorithm 1 of the paper sums CMIS. A memory that moved up in several events when others were taken out is measured at
one of them first. Where that attributes the harm to it, the other events count its mean credit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_audit.attribution.replays.ablation import Outcome

__all__ = [
    "LEAST_SHARE", "Influence", "credit", "credit_over_events", "difference", "evidence", "harm_of", "share_of",
    "sum_over_events",
]  # fmt: skip

LEAST_SHARE = 0.5
"""Of the way to the harm that a memory must explain to be evidence of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """What the replays of one event say of one memory; None is unknown."""

    event_id: str
    entry_id: str
    sufficiency_nats: float | None = None
    sufficiency_share: float | None = None
    """Of the way from the harm span's odds without a cause to even odds, what the memory alone goes; None where not
    known, 1 where there is no way or the span is not measured."""

    necessity_nats: float | None = None
    necessity_share: float | None = None
    """Of the same way, what is lost without the memory."""

    cmis: float | None = None
    """Plain eq. 7 on the harm score: h(full) - h(without m)."""


def evidence(influence: Influence) -> float | None:
    """Return the nats that say that a memory contributed to the harm; None where neither term is known.

    The larger term counts, of those that explain at least `LEAST_SHARE` of the way. A memory of the harm's topic may
    make its words a hundred times likelier and leave them all but impossible: that is priming, and no cause. And what
    its presence took from the odds of the harmful run counts against what it does alone: it spoke against the harm.
    """
    alone, absent = influence.sufficiency_nats, influence.necessity_nats
    if alone is not None:
        alone += min(absent or 0.0, 0.0)
    terms = ((alone, influence.sufficiency_share), (absent, influence.necessity_share))
    known = [(nats, share) for nats, share in terms if nats is not None and share is not None]
    return max((nats for nats, share in known if share >= LEAST_SHARE), default=0.0) if known else None


def share_of(nats: float | None, way: float | None) -> float | None:
    """Return what part of a way some nats are; all of it where there is no way to go, None where one is unknown."""
    if nats is None or way is None:
        return None
    return nats / way if way > 0.0 else 1.0


def credit(influence: Influence) -> float | None:
    """Apply the credit rule; None where neither term is known.

    A term that is not known counts as the other one, so that a measurement that a budget left out moves no ranking.
    """
    terms = [
        max(term, 0.0) for term in (influence.sufficiency_nats, influence.necessity_nats) if term is not None
    ]  # fmt: skip
    return sum(terms) / len(terms) if terms else None


def sum_over_events(values: Iterable[tuple[str, float | None]]) -> Mapping[str, float]:
    """Sum per-event values by entry (Algorithm 1), in a fixed order; entries with nothing known are absent."""
    return _summed(_by_entry(values))


def credit_over_events(
    influences: Iterable[Mapping[str, Influence]], skipped: Mapping[str, int]
) -> Mapping[str, float]:
    """Sum credit over events, by entry id.

    Args:
        influences: Of each event, by entry id.
        skipped: By entry id, how many events did not measure it, since another one had decided: there it counts as
            much as at the mean of the others.
    """
    measured = _by_entry((name, credit(influence)) for of_event in influences for name, influence in of_event.items())
    for entry_id, events in skipped.items():
        if entry_id in measured:
            measured[entry_id] += [fmean(measured[entry_id])] * events
    return _summed(measured)


def _by_entry(values: Iterable[tuple[str, float | None]]) -> dict[str, list[float]]:
    known: dict[str, list[float]] = {}
    for entry_id, value in values:
        if value is not None:
            known.setdefault(entry_id, []).append(value)
    return known


def _summed(values: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
    return {entry_id: math.fsum(parts) for entry_id, parts in sorted(values.items())}


def difference(a: float | None, b: float | None) -> float | None:
    """Return a - b; None where one is unknown."""
    return None if a is None or b is None else a - b


def harm_of(outcome: Outcome | None) -> float | None:
    """Return the harm of an outcome; None where there is none, or it is unknown."""
    return None if outcome is None else outcome.harm
