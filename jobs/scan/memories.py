"""What a scan reads: a verified store, or an agent's own memory through its connector, tenant by tenant."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memory_audit.guard.blocks.block_list import read_block_list
from memory_audit.jobs.connect.import_source import entries_of
from memory_audit.lineage.trust import TrustRules
from memory_audit.lineage.verified import VerifiedLineage
from memory_audit.scan.detector import ScannedMemory
from memory_audit.scan.finding import content_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from memory_audit.entry import Entry
    from memory_audit.jobs.connect.connector import Source
    from memory_audit.scan.detector import Need
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Memories", "SourceMemories", "StoreMemories", "elsewhere"]


class Memories(Protocol):
    """Tenants' memories, in any process that they are sent to."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Tenant to about how many memories it has."""
        ...

    def mark(self, tenant: str) -> str:
        """Return a digest (hex) that is another one once anything of the tenant's memory is."""
        ...

    def of(self, tenant: str, needs: Collection[Need], now_ms: int) -> ScannedMemory:
        """Return a tenant's memory with what can be had of it without a model.

        Raises:
            VerificationError: it does not verify.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMemories:
    """Of a signed store."""

    snapshot: VerifiedSnapshot

    @property
    def sizes(self) -> Mapping[str, int]:
        """See `Memories`."""
        return {tenant: ref.size for tenant, ref in self.snapshot.log_refs.items()}

    def mark(self, tenant: str) -> str:
        """See `Memories`: of the tenant's checkpoint, and of all tombstones, which may hold for every tenant."""
        refs, buckets = self.snapshot.log_refs, self.snapshot.manifest.buckets
        stones = [files.tombstones.sha256 for _, files in sorted(buckets.items()) if files.tombstones is not None]
        return hashlib.sha256(b"\0".join((refs[tenant].note, *map(str.encode, stones)))).hexdigest()

    def of(self, tenant: str, needs: Collection[Need], now_ms: int) -> ScannedMemory:
        """See `Memories`."""
        lineage = VerifiedLineage(self.snapshot, tenant, TrustRules()).dag if "lineage" in needs else None
        return ScannedMemory(
            tenant=tenant, entries=self.snapshot.entries(tenant), now_ms=now_ms, lineage=lineage,
            removed=read_block_list(self.snapshot, tenant, embedder="", now_ms=now_ms),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMemories:
    """Of an agent's own system: held whole, as whoever reads it may not be where the system is."""

    entries: Mapping[str, tuple[Entry, ...]]
    unfit: tuple[str, ...] = ()
    """Why a record is no entry, one line each."""

    @classmethod
    def read(cls, source: Source, where: str, *, tenant: str | None, principal: str, now_ms: int) -> SourceMemories:
        """Read all records of a source; nothing in it changes.

        Raises:
            UsageError: a schema that the connector does not know.
            EntryError: a memory that names no owner, without `tenant`.
        """
        source.schema()
        found, unfit = entries_of(source, where, tenant, principal, now_ms)
        return cls(entries={name: tuple(mine) for name, mine in found.items()}, unfit=tuple(unfit))

    @property
    def sizes(self) -> Mapping[str, int]:
        """See `Memories`."""
        return {tenant: len(mine) for tenant, mine in self.entries.items()}

    def mark(self, tenant: str) -> str:
        """See `Memories`."""
        mine = self.entries[tenant]
        told = [(entry.entry_id, entry.principal, entry.source, content_digest(entry)) for entry in mine]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def of(self, tenant: str, needs: Collection[Need], now_ms: int) -> ScannedMemory:
        """See `Memories`; nobody signed who drew on what."""
        del needs
        return ScannedMemory(tenant=tenant, entries=self.entries[tenant], now_ms=now_ms)


def elsewhere(memories: Memories, tenants: Iterable[str], now_ms: int) -> dict[str, int]:
    """Return how many tenants hold the same content, of contents that more than one holds."""
    held = Counter[str]()
    for tenant in tenants:
        held.update({content_digest(entry) for entry in memories.of(tenant, (), now_ms).entries})
    return {digest: count for digest, count in held.items() if count > 1}
