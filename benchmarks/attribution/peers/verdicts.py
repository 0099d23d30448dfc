"""What a method says of one cell, and how right that is. Poison labels are read here and in the benchmarks' own stores.

A ranking's ties are broken by entry id where memories are removed (ids follow a shuffle and say nothing), and
averaged over where hits are counted: a method that cannot tell gets what chance gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.attribution.peers.metered import Cost
from memory_audit.attribution.evidence import sum_over_events

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Attribution", "hit_at_1", "hits", "removal", "top"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """One method's answer for all events of a cell."""

    scores: Mapping[str, Mapping[str, float]]
    """Event id to entry id to score, larger is guiltier; the entries are those that the event retrieved."""

    chosen: frozenset[str] | None
    """What the method would remove by its own rule; None where it has none."""

    cost: Cost = field(default_factory=Cost)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Anything a reader should see beside it."""


def hit_at_1(scores: Mapping[str, float], poison: frozenset[str]) -> float:
    """Probability that the first-ranked memory is poison, ties broken at random.

    Raises:
        ValueError: no scores.
    """
    best = max(scores.values())
    first = [name for name, score in scores.items() if score >= best]
    return sum(name in poison for name in first) / len(first)


def hits(attribution: Attribution, poison: frozenset[str]) -> dict[str, float | int | None]:
    """Count hits over events, and over those that retrieved both kinds: in the others any ranking is right or wrong."""
    mixed = {
        event_id: scores
        for event_id, scores in attribution.scores.items()
        if 0 < sum(name in poison for name in scores) < len(scores)
    }
    chance = [sum(name in poison for name in scores) / len(scores) for scores in mixed.values()]
    return {
        "events": len(attribution.scores),
        "hit_at_1": round(sum(hit_at_1(scores, poison) for scores in attribution.scores.values()), 3),
        "mixed_events": len(mixed),
        "mixed_hit_at_1": round(sum(hit_at_1(scores, poison) for scores in mixed.values()), 3),
        "mixed_chance": round(sum(chance), 3),
    }


def top(attribution: Attribution, count: int) -> frozenset[str]:
    """Return the `count` guiltiest memories, scores summed over events as in Algorithm 1; all where there are fewer."""
    summed = sum_over_events(
        (entry_id, score) for scores in attribution.scores.values() for entry_id, score in scores.items()
    )
    return frozenset(sorted(summed, key=lambda name: (-summed[name], name))[:count])


def removal(removed: frozenset[str], candidates: frozenset[str], poison: frozenset[str]) -> dict[str, Any]:
    """Precision and recall of a removed set; recall of all poison, and of what the events had retrieved."""
    right, seen = len(removed & poison), len(candidates & poison)
    return {
        "removed": len(removed),
        "benign_removed": len(removed - poison),
        "precision": round(right / len(removed), 3) if removed else None,
        "recall": round(right / len(poison), 3) if poison else None,
        "recall_of_retrieved": round(len(removed & candidates & poison) / seen, 3) if seen else None,
    }
