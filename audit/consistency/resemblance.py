"""Which memories of one tenant resemble each other: asked for a few attributed ones, and computed for these alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.consistency.tenant_graph import TenantGraph

__all__ = ["Resemblance"]

RESEMBLING = 12
"""Most entries tied to one entry: what a search asks about when the harm is attributed to that entry."""

RESPONSE_SIMILARITY = 0.5
"""Cosine of two responses from which they may serve one attack: poison shares its instruction, not its question."""


class Resemblance(Mapping[str, list[str]]):
    """Per entry, what evidence ties to it, closest first: similar responses, graph neighbours, the same parents.

    Of copies (`Entry.shown`) only the first is tied to any, since a search judges them alike: else copies of one poison
    would fill all places, and its variants would never be asked about.

    Writers are not used: where every entry has its own writer that says nothing, and where one account wrote much, it
    says too much. What ties two entries here only says what to *measure*; a measurement attributes.

    Args:
        tenant: Its graph, whole or with the neighbourhoods of whom is asked about.
    """

    def __init__(self, tenant: TenantGraph) -> None:
        self._tenant = tenant
        self._known: dict[str, list[str]] = {}

    @cached_property
    def _children(self) -> dict[str, list[int]]:
        children: dict[str, list[int]] = {}
        for place, entry in enumerate(self._tenant.entries):
            for parent in entry.parents:
                children.setdefault(parent.entry_id, []).append(place)
        return children

    @cached_property
    def _first(self) -> list[int]:
        first: dict[object, int] = {}
        return [first.setdefault(entry.shown, place) for place, entry in enumerate(self._tenant.entries)]

    def __getitem__(self, entry_id: str) -> list[str]:
        if entry_id not in self._known:
            self._known[entry_id] = self._tied(self._tenant.places[entry_id])
        return self._known[entry_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tenant.places)

    def __len__(self) -> int:
        return len(self._tenant.entries)

    def _tied(self, place: int) -> list[str]:
        responses = self._tenant.responses
        # Rounded so that the last bit of a BLAS sum, which depends on the machine, cannot swap equal entries.
        similar = np.round(responses @ responses[place], 6)
        alike = np.flatnonzero(similar >= RESPONSE_SIMILARITY)
        alike = alike[np.argsort(-similar[alike], kind="stable")]
        entries = self._tenant.entries
        kin = sorted({
            child for parent in entries[place].parents for child in self._children[parent.entry_id]
        })  # fmt: skip
        own = self._first[place]
        others = dict.fromkeys(self._first[int(other)] for other in (*alike, *self._tenant.near(place), *kin))
        return [entries[other].entry_id for other in others if other != own][:RESEMBLING]
