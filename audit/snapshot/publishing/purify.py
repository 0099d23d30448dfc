"""Taking entries out of the live view: removed, or put in quarantine; a new version, signed by the auditor.

Nothing is deleted from the log: the purified checkpoint is provably consistent with the audited one, so anyone can
check that exactly the named entries are out. Files of the older versions stay until a vacuum. What is in quarantine
stays as it is, until it is released (`memory_audit.snapshot.publishing.release`) or removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from memory_audit.errors import StalePlanError, UsageError
from memory_audit.provenance import strict_json
from memory_audit.provenance.leaf import QUARANTINE, Tombstone
from memory_audit.snapshot.layout import by_bucket
from memory_audit.snapshot.newest import read_newest
from memory_audit.snapshot.publishing.rewrite import publish_tombstones

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["MAX_REMOVED", "Purified", "RemovedEntry", "Withdrawal", "purify", "read_purified", "removal_record"]

Withdrawal = Literal["purify", "quarantine"]
"""How entries leave the live view: for good, or until they are released."""

MAX_REMOVED = 1_000_000
"""By one purification: what one attestation can state."""

MAX_REMOVED_BYTES = 144 << 20
"""Of all removals as an attestation states them: in base64, and with the run's configuration, they fit into one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedEntry:
    """One entry that left the live view, as it stands in the log."""

    tenant: str
    entry_id: str
    index: int
    leaf_hash: str
    """Hex."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Purified:
    """A purification or a quarantine, done or planned."""

    operation: Withdrawal
    store_id: str
    audited_version: int
    """The version before: the audited one, unless what is removed was in quarantine meanwhile."""

    audited_digest: str
    version: int
    """The new version; with `published` False, the one it would be."""

    digest: str | None
    """SHA-256 (hex) of the new manifest's payload; None where nothing was published."""

    published: bool
    removed: tuple[RemovedEntry, ...]
    """By tenant and leaf index."""

    entries: int
    """Live entries afterwards."""


def purify(  # noqa: PLR0913 - what is removed, by whom, and what the record says
    path: Path,
    snapshot: VerifiedSnapshot,
    removals: Mapping[str, Mapping[str, str]],
    keyring: Keyring,
    *,
    run_id: str,
    now_ms: int,
    config: Mapping[str, str],
    models: Mapping[str, str],
    expires_ms: int | None = None,
    extra: Mapping[str, Mapping[str, Mapping[str, str]]] = MappingProxyType({}),
    operation: Withdrawal = "purify",
    dry_run: bool = False,
) -> Purified:
    """Remove entries from the newest version of a store, or put them in quarantine.

    Args:
        path: The store.
        snapshot: The version that was audited; it must still be the newest.
        removals: Tenant to entry id to the reason; what is removed may be live or in quarantine.
        keyring: Holds the auditor and the log keys.
        run_id: The audit run, named in tombstones and manifest.
        now_ms: Clock, Unix milliseconds.
        config: Parameters of the run, kept in the manifest (`recorded_settings`).
        models: Role to model id, kept in the manifest likewise.
        expires_ms: When readers must refuse the version; None is never.
        extra: Tenant to entry id to what its tombstone carries besides (hazard signatures).
        operation: Which of the two.
        dry_run: Check everything and write nothing.

    Raises:
        UsageError: no removals, an entry that is not live, a reason that no tombstone can carry, more than manifest or
            attestation can state, a missing key, or a clock far ahead of the version.
        StalePlanError: the store has a newer version than the audited one, or got one meanwhile.
        VerificationError: what is to be rewritten does not verify.
        IncompleteError: the disk is full; the audited version is unchanged.
    """
    newest = read_newest(path, keyring.policy, now_ms=now_ms, check_expiry=False)
    if newest.version != snapshot.version:
        raise StalePlanError(
            f"{path} is at version {newest.version}, the audit read version {snapshot.version}: audit again"
        )
    if newest.digest != snapshot.digest:
        raise StalePlanError(f"version {newest.version} of {path} is not the one that was audited: audit again")
    if not any(removals.values()):
        raise UsageError("nothing to remove: the run proposes no entries")
    removed, was_live = _resolve(snapshot, removals, operation)
    mark = QUARANTINE if operation == "quarantine" else {}
    stones = [
        Tombstone(
            tenant=item.tenant, entry_id=item.entry_id, removed_index=item.index,
            removed_leaf_hash=bytes.fromhex(item.leaf_hash), reason=item.reason, run_id=run_id, created_at_ms=now_ms,
            extra={**extra.get(item.tenant, {}).get(item.entry_id, {}), **mark},
        )
        for item in removed
    ]  # fmt: skip
    _check_statable(removed)
    published = publish_tombstones(
        path, snapshot, stones, keyring, operation=operation, run_id=run_id, now_ms=now_ms, config=config,
        models=models, expires_ms=expires_ms, dry_run=dry_run,
    )  # fmt: skip
    plan = Purified(
        operation=operation, store_id=snapshot.store_id, audited_version=snapshot.version,
        audited_digest=snapshot.digest, version=snapshot.version + 1, digest=None, published=False, removed=removed,
        entries=snapshot.manifest.entries - was_live,
    )  # fmt: skip
    if published is None:
        return plan
    return replace(plan, digest=published.digest, published=True, entries=published.entries)


def removal_record(item: RemovedEntry) -> dict[str, Any]:
    """Return a removal as an attestation states it."""
    return {
        "tenant": item.tenant,
        "entryId": item.entry_id,
        "leafIndex": item.index,
        "leafHash": item.leaf_hash,
        "reason": item.reason,
    }


def read_purified(
    snapshot: VerifiedSnapshot, run_id: str, audited_digest: str, operation: Withdrawal = "purify"
) -> Purified | None:
    """Return what a run's purification published, where `snapshot` is what it made of the audited version; else None.

    For whoever was interrupted after it: all that the run has removed so far, or has in quarantine, stands in the log.
    """
    manifest = snapshot.manifest
    if (manifest.operation, manifest.run_id, manifest.parent) != (operation, run_id, audited_digest):
        return None
    removed = [
        RemovedEntry(
            tenant=tenant, entry_id=stone.entry_id, index=stone.removed_index,
            leaf_hash=stone.removed_leaf_hash.hex(), reason=stone.reason,
        )
        for tenant in snapshot.tenants for stone in snapshot.tombstones(tenant)
        if stone.run_id == run_id and stone.quarantines == (operation == "quarantine")
    ]  # fmt: skip
    return Purified(
        operation=operation, store_id=snapshot.store_id, audited_version=snapshot.version - 1,
        audited_digest=audited_digest,
        version=snapshot.version, digest=snapshot.digest, published=True,
        removed=tuple(sorted(removed, key=lambda item: (item.tenant, item.index))), entries=manifest.entries,
    )  # fmt: skip


def _resolve(
    snapshot: VerifiedSnapshot, removals: Mapping[str, Mapping[str, str]], operation: Withdrawal
) -> tuple[tuple[RemovedEntry, ...], int]:
    """Find each entry in its verified log; return them, and how many of them are live."""
    result: list[RemovedEntry] = []
    was_live = 0
    for tenant in by_bucket(removals):
        if not removals[tenant]:
            continue
        log = snapshot.log(tenant)
        live = {item.entry.entry_id: item.index for item in log.entries}
        quarantined = {item.entry.entry_id: item.index for item in log.quarantined}
        positions = live if operation == "quarantine" else live | quarantined
        was_live += len(live.keys() & removals[tenant])
        for entry_id in removals[tenant]:
            if entry_id not in positions:
                raise UsageError(
                    f"no live entry {entry_id!r:.80} of tenant {tenant!r:.80} in version {snapshot.version}"
                )
        result.extend(
            RemovedEntry(
                tenant=tenant, entry_id=entry_id, index=positions[entry_id],
                leaf_hash=log.leaf_hashes[positions[entry_id]].hex(), reason=reason,
            )
            for entry_id, reason in sorted(removals[tenant].items(), key=lambda item: positions[item[0]])
        )  # fmt: skip
    return tuple(sorted(result, key=lambda item: (item.tenant, item.index))), was_live


def _check_statable(removed: Sequence[RemovedEntry]) -> None:
    """Refuse what no attestation could state: once published, it would stay unattested."""
    size = sum(len(strict_json.encode(removal_record(item))) for item in removed)
    if len(removed) > MAX_REMOVED or size > MAX_REMOVED_BYTES:
        raise UsageError(
            f"{len(removed)} removals, which take {size} bytes in an attestation: at most {MAX_REMOVED} of "
            f"{MAX_REMOVED_BYTES} bytes can be attested; audit and purge a part of the tenants at a time"
        )
