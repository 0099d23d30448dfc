"""A store's memories as the JSON lines that `formats.import_jsonl` reads, and what is no longer live, likewise.

Letters beyond ASCII are escaped: no memory can steer the terminal that shows it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from memory_audit.entry import PARTS_PER_MILLION

if TYPE_CHECKING:
    from memory_audit.entry import Entry
    from memory_audit.provenance.leaf import Tombstone

__all__ = ["memory_line", "removed_line"]


def memory_line(entry: Entry) -> str:
    """Return a memory as one line of JSON, without the newline; read again it is the same entry."""
    record: dict[str, object] = {
        "tenant": entry.tenant, "entry_id": entry.entry_id, "principal": entry.principal, "source": entry.source,
        "created_at_ms": entry.created_at_ms, "request": entry.request, "response": entry.response,
    }  # fmt: skip
    if entry.parents:
        record["parents"] = [[parent.entry_id, parent.weight_ppm / PARTS_PER_MILLION] for parent in entry.parents]
    if entry.metadata:
        record["metadata"] = dict(sorted(entry.metadata.items()))
    return json.dumps(record)


def removed_line(tombstone: Tombstone) -> str:
    """Return what tells which memory is gone or in quarantine, and why, as one line of JSON, without its text."""
    when = "quarantined_at_ms" if tombstone.quarantines else "removed_at_ms"
    return json.dumps({
        "tenant": tombstone.tenant, "entry_id": tombstone.entry_id, "reason": tombstone.reason,
        "run_id": tombstone.run_id, when: tombstone.created_at_ms,
        "leaf_index": tombstone.removed_index, "leaf_hash": tombstone.removed_leaf_hash.hex(),
    })  # fmt: skip
