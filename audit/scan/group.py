"""How a finding about many memories stays small: few are named, and of a text only its beginning is evidence."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from memory_audit.scan.finding import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.entry import Entry

__all__ = ["MAX_NAMED", "excerpt", "named"]

MAX_NAMED = 50
"""Memories that one finding names; of more their number is told."""

MAX_EXCERPT = 300
"""Characters of a memory's text that are evidence: two or three sentences."""


def named(entry_ids: Iterable[str], affected: int) -> tuple[tuple[str, ...], int]:
    """Return `entry_ids` and `affected` of a finding about so many memories, the first to look at in front."""
    ids = tuple(islice(entry_ids, MAX_NAMED))
    return ids, 0 if len(ids) == affected else affected


def excerpt(label: str, entry: Entry) -> Evidence:
    """Return the beginning of what a memory says as evidence."""
    text = entry.text.strip() or " ".join(entry.metadata.values())
    return Evidence(label=label, value=text[:MAX_EXCERPT], entry_id=entry.entry_id)
