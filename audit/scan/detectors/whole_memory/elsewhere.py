"""Memories that other tenants hold word for word: a leak, a flood over many accounts, or a text that all begin with.

How many others is told, and never which: one tenant's findings are not another's to read. Texts of one or two words are
passed over, as by the guard's fingerprints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.guard.text.forms import fingerprint
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Finding, content_digest
from memory_audit.scan.group import excerpt, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory

__all__ = ["Elsewhere"]

KINDS = {
    "other-tenants": Kind(
        title="A memory that other tenants hold too",
        advice="Accept it where every tenant begins with this text. Else find out who writes to several tenants, or "
        "whose conversation this is.",
        severity="low",
        taxonomy=("ASI06", "AML.T0057"),
    )
}


class Elsewhere:
    """See the module."""

    name = "elsewhere"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset({"outside"})
    alone = False

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each content, in log order."""
        del entries  # what other tenants hold changes without this one
        if not memory.elsewhere:
            return
        shared: dict[str, list[Entry]] = {}
        for entry in memory.entries:
            digest = content_digest(entry)
            if memory.elsewhere.get(digest, 0) and fingerprint(entry.text, "") is not None:
                shared.setdefault(digest, []).append(entry)
        for digest, members in shared.items():
            ids, affected = named((entry.entry_id for entry in members), len(members))
            yield Finding(
                detector=self.name, kind="other-tenants", tenant=memory.tenant, entry_ids=ids, affected=affected,
                severity="low", message=f"held by {counted(memory.elsewhere[digest], 'other tenant')} too",
                evidence=(excerpt("text", members[0]),), key=digest,
            )  # fmt: skip
