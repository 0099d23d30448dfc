"""Format effects that events share: where several diverge at the same place and word, their controls count together.

One event needs every one of its control memories before a divergence point counts as a format effect. Events whose
answers and clean replays are the same up to that word ask the same thing of other memories. So as many different
control memories settle it for all of them, wherever each was asked, and none may fall short. The number of memories
that would have to be planted to hide the divergence stays the same. Where that leaves an event no divergence point at
all, it asks for itself (`ControlMemories.format_checks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.search.points.divergence import WORD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.attribution.search.points.divergence import MeasurementPoint

__all__ = ["Place", "place_of", "shared_format"]

Place = tuple[tuple[str, ...], str, str]
"""The turns before, the answer up to and with the diverging word, and the clean replay's word in its place."""


def place_of(point: MeasurementPoint) -> Place:
    """Return what two divergence points have in common that are the same question to a memory."""
    clean = WORD.match(point.clean)
    return point.history, point.through, clean[0] if clean else ""


def shared_format(told: Iterable[tuple[MeasurementPoint, str, bool]], wanted: int) -> set[Place]:
    """Return the places that are format effects by what control memories did there.

    Args:
        told: Per answer the divergence point, the control memory's entry id, and whether it raised the odds enough to
            be attributed.
        wanted: So many different control memories settle a place, where none fell short.
    """
    raised: dict[Place, set[str]] = {}
    short: set[Place] = set()
    for point, entry_id, as_much in told:
        if as_much:
            raised.setdefault(place_of(point), set()).add(entry_id)
        else:
            short.add(place_of(point))
    return {place for place, by in raised.items() if len(by) >= wanted and place not in short}
