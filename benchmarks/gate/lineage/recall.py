"""Memories with their trust labels, for an agent's prompt (MemLineage's M5): what retrieval found, and whom it is from.

Recall is not refused: an external memory may inform an answer, and only a sensitive action needs the gate. What the
lineage does not know has no label, and is refused rather than passed on without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.lineage.dag import PATH_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.entry import Entry
    from memory_audit.lineage.dag import Lineage, PathStep
    from memory_audit.result import TrustLabel

__all__ = ["LabelledMemory", "labelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledMemory:
    """One retrieved memory and its trust label."""

    entry: Entry
    label: TrustLabel
    path: tuple[PathStep, ...]
    """From an external ancestor to the entry; of an external entry itself alone; empty for a trusted one.

    At most PATH_STEPS, the ancestor and the last ones: the first of these says how many are left out before it."""


def labelled(memories: Iterable[Entry], lineage: Lineage) -> tuple[LabelledMemory, ...]:
    """Label what a retrieval returned, in its order: `labelled(memory.retrieve(query), lineage)`.

    Raises:
        UsageError: a memory that is not live in the lineage, as where the two are of different versions of a store.
    """
    found = []
    for entry in memories:
        if entry.tenant != lineage.tenant or entry.entry_id not in lineage or lineage.is_removed(entry.entry_id):
            raise UsageError(
                f"retrieved memory {entry.entry_id!r:.80} is not live in the lineage of tenant {lineage.tenant!r:.80}: "
                "read both from one version of the store"
            )
        label = lineage.label(entry.entry_id)
        found.append(LabelledMemory(entry=entry, label=label, path=lineage.path(entry.entry_id, PATH_STEPS)))
    return tuple(found)
