"""Form that events share: where several part at the same place and word, their placebos are told together.

One event needs every one of its placebos before a parting counts as form. Events whose answers and clean replays are
the same up to that word ask the same thing of other memories. So as many different placebos settle it for all of them,
wherever each was asked, and none may fall short. The number of memories that would have to be planted to hide the
parting stays the same. Where that leaves an event no parting at all, it asks for itself (`Placebos.doubting_form`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.attribution.search.divergence import WORD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.attribution.search.divergence import DecisionPoint

__all__ = ["Place", "place_of", "shared_form"]

Place = tuple[tuple[str, ...], str, str]
"""The turns before, the answer up to and with the parting word, and the clean replay's word in its place."""


def place_of(point: DecisionPoint) -> Place:
    """Return what two partings have in common that are the same question to a memory."""
    clean = WORD.match(point.clean)
    return point.history, point.through, clean[0] if clean else ""


def shared_form(told: Iterable[tuple[DecisionPoint, str, bool]], wanted: int) -> set[Place]:
    """Return the places that are form by what placebos did there.

    Args:
        told: Per answer the parting, the placebo's entry id, and whether it raised the odds as much as a culprit would.
        wanted: So many different placebos settle a place, where none fell short.
    """
    raised: dict[Place, set[str]] = {}
    short: set[Place] = set()
    for point, entry_id, as_much in told:
        if as_much:
            raised.setdefault(place_of(point), set()).add(entry_id)
        else:
            short.add(place_of(point))
    return {place for place, by in raised.items() if len(by) >= wanted and place not in short}
