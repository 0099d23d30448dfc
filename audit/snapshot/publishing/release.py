"""Ending a quarantine: entries come back into the live view as they were, each at its place in the log's order.

The auditor signs a tombstone for the tombstone that put an entry there (`memory_audit.snapshot.quarantine`); the entry
itself is not signed anew. Lockouts of its paraphrases end with the quarantine, since they are read from tombstones in
force.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.provenance.leaf import Tombstone
from memory_audit.snapshot.layout import bucket_of, by_bucket
from memory_audit.snapshot.publishing.rewrite import publish_tombstones

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.publishing.publish import Published
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Released", "quarantined_by", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What was released, or would be."""

    ended: tuple[Tombstone, ...]
    """What put each of the entries into quarantine, by tenant and leaf index."""

    published: Published | None
    """None for a dry run, and where none of them is in quarantine."""


def quarantined_by(snapshot: VerifiedSnapshot, run_id: str) -> dict[str, set[str]]:
    """Return what a run put in quarantine that is still there: tenant to entry ids.

    Raises:
        VerificationError: a tenant's log does not verify.
    """
    buckets, found = snapshot.manifest.buckets, defaultdict[str, set[str]](set)
    for tenant in by_bucket(snapshot.tenants):
        if buckets[bucket_of(tenant)].quarantine:
            for stone in snapshot.tombstones(tenant):
                if stone.quarantines and stone.run_id == run_id:
                    found[tenant].add(stone.entry_id)
    return dict(found)


def release(  # noqa: PLR0913 - what comes back, by whom, and what the record says
    path: Path,
    snapshot: VerifiedSnapshot,
    entries: Mapping[str, Collection[str]],
    keyring: Keyring,
    *,
    reason: str,
    now_ms: int,
    dry_run: bool = False,
) -> Released:
    """Put entries that are in quarantine back into the live view.

    Args:
        path: The store.
        snapshot: Its newest version.
        entries: Tenant to entry ids; those that are live stay so.
        keyring: Holds the auditor and the log keys.
        reason: Why; kept in the signed log.
        now_ms: Clock, Unix milliseconds.
        dry_run: Check everything and write nothing.

    Raises:
        UsageError: an entry that is neither live nor in quarantine, a reason that no tombstone can carry, a missing
            key, or a clock far ahead of the version.
        StalePlanError: someone else published meanwhile.
        VerificationError: what is to be rewritten does not verify.
        IncompleteError: the disk is full; the newest version is unchanged.
    """
    ended: list[Tombstone] = []
    releases: list[Tombstone] = []
    for tenant in by_bucket(entries):
        log = snapshot.log(tenant)
        live = {item.entry.entry_id for item in log.entries}
        quarantines = {item.tombstone.entry_id: item for item in log.tombstones if item.tombstone.quarantines}
        for entry_id in sorted(entries[tenant]):
            if entry_id in live:
                continue
            if entry_id not in quarantines:
                raise UsageError(f"no entry {entry_id!r:.80} of tenant {tenant!r:.80} is in quarantine, or live")
            item = quarantines[entry_id]
            ended.append(item.tombstone)
            releases.append(
                Tombstone(
                    tenant=tenant, entry_id=entry_id, removed_index=item.index,
                    removed_leaf_hash=log.leaf_hashes[item.index], reason=reason, run_id=item.tombstone.run_id,
                    created_at_ms=now_ms,
                )
            )  # fmt: skip
    published = None
    if releases:
        published = publish_tombstones(
            path, snapshot, releases, keyring, operation="release", run_id="", now_ms=now_ms, config={}, models={},
            dry_run=dry_run,
        )  # fmt: skip
    return Released(
        ended=tuple(sorted(ended, key=lambda stone: (stone.tenant, stone.removed_index))), published=published
    )
