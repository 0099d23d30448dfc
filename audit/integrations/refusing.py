"""What the guards of all systems have in common: records in, reasons to refuse them out.

The store's newest version is in force for every write: a removal that is published now refuses the next one. A tenant
that is not in the store is let in, also where a removal holds for all of them. A record that is no entry of the store,
such as one of 70,000 bytes, cannot be judged, and is refused.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from memory_audit.errors import AuditError, UsageError, WriteRefusedError
from memory_audit.integrations.entries import entry_of, tenant_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.guard.guarded_store import GuardedStore
    from memory_audit.integrations.record import Record

__all__ = ["Refusing", "error_of"]

MAX_NAMED = 5
"""Ids in a message; `WriteRefusedError.refused` has them all."""


class Refusing:
    """Judges what is written to one memory system.

    Args:
        guarded: The store whose removals count.
        where: The system, for messages.
        tenant: Of records that name no owner, as at their import; None refuses them.
        principal: Of records that name no writer.
    """

    def __init__(self, guarded: GuardedStore, where: str, *, tenant: str | None, principal: str) -> None:
        self._guarded, self._where, self._tenant, self._principal = guarded, where, tenant, principal

    def refused(self, records: Sequence[Record]) -> dict[int, str]:
        """Return which of the records must not be written, by their number, and why."""
        with suppress(AuditError):  # the old version stays in force, and `GuardedStore.trouble` says why
            self._guarded.refresh()
        found: dict[int, str] = {}
        mine: dict[str, dict[int, Entry]] = defaultdict(dict)
        for number, record in enumerate(records):
            try:
                tenant = tenant_of(record, self._tenant, self._where)
                mine[tenant][number] = entry_of(
                    record, tenant=tenant, principal=self._principal, now_ms=self._guarded.now_ms(), where=self._where
                )
            except UsageError as error:
                found[number] = str(error)
        for tenant in mine.keys() & self._guarded.snapshot.log_refs.keys():
            decisions = self._guarded.guard(tenant).check_many(list(mine[tenant].values()))
            found |= {
                number: decision.reason
                for number, decision in zip(mine[tenant], decisions, strict=True) if not decision.allowed
            }  # fmt: skip
        return found

    def check(self, records: Sequence[Record]) -> None:
        """Judge records that are written together or not at all.

        Raises:
            WriteRefusedError: one must not be written.
        """
        found = self.refused(records)
        if found:
            raise error_of({records[number].record_id: why for number, why in found.items()})


def error_of(refused: Mapping[str, str]) -> WriteRefusedError:
    """Return what the agent is told of refused records: their ids, and why."""
    named = "; ".join(f"{name!r:.80} ({why:.200})" for name, why in list(refused.items())[:MAX_NAMED])
    return WriteRefusedError(f"{len(refused)} refused by the guard of removed memories: {named}", refused)
