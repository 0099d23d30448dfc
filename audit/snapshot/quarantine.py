"""Quarantine: a memory that no agent reads, and that can come back as it was.

    leaf 2   entry "m-7"                                           live
    leaf 5   tombstone of leaf 2, with the extra item QUARANTINE   in quarantine
    leaf 6   tombstone of leaf 5                                   released: live again
    leaf 7   tombstone of leaf 2                                   removed for good

1. A tombstone is in force until a later one ends it. In force, it says where its memory is: removed, or in quarantine.
2. One that names the leaf of a quarantine in force, and the same entry id, releases: it ends the quarantine, and says
   nothing else.
3. One that names a memory in quarantine removes it; the quarantine is no longer in force.
4. A removal is in force for good: nothing names its leaf, and no second tombstone its memory.
5. The rows of memories in quarantine, with their writers' signatures, lie in the bucket's quarantine files and in no
   data file: exactly those that a quarantine in force names, each with that id.

So nobody but the auditor can put a memory in quarantine or take it out, or lose one that is there. A program that does
not know quarantine reads no version with one: its manifest has another format, and its log a leaf that is used twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.snapshot.columns.tables import SignedTombstone

__all__ = ["in_force"]


def in_force(tombstones: Iterable[SignedTombstone]) -> list[SignedTombstone]:
    """Return those tombstones of one log that no later one ended; all are given in leaf order, and so returned.

    Raises:
        VerificationError: a memory is removed twice, or put in quarantine where it is removed or there already; or a
            release names another memory than its quarantine.
    """
    found: dict[int, SignedTombstone] = {}  # by the leaf of the memory
    quarantines: dict[int, SignedTombstone] = {}  # those of them, by their own leaf
    for item in tombstones:
        body, where = item.tombstone, f"tenant {item.tombstone.tenant!r:.80}, leaf {item.index}"
        ended = quarantines.pop(body.removed_index, None)
        if ended is not None:
            if ended.tombstone.entry_id != body.entry_id:
                raise VerificationError(
                    f"{where}: tombstone releases {body.entry_id!r:.80}, leaf {body.removed_index} holds "
                    f"{ended.tombstone.entry_id!r:.80} in quarantine"
                )
            del found[ended.tombstone.removed_index]
            continue
        before = found.pop(body.removed_index, None)
        if before is not None and (body.quarantines or quarantines.pop(before.index, None) is None):
            raise VerificationError(f"{where}: tombstone names leaf {body.removed_index}, which is already removed")
        found[body.removed_index] = item
        if body.quarantines:
            quarantines[item.index] = item
    return list(found.values())
