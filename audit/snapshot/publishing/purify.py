"""Removing entries: tombstones appended to the log, the live view rewritten, a new version signed by the auditor.

Nothing is deleted from the log: the purified checkpoint is provably consistent with the audited one, so anyone can
check that exactly the named entries were removed. Files of the older versions stay until a vacuum.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_audit.errors import StalePlanError, UsageError
from memory_audit.provenance import strict_json
from memory_audit.provenance.leaf import Tombstone
from memory_audit.snapshot.layout import bucket_of, by_bucket, hold
from memory_audit.snapshot.manifest import check_dated_near
from memory_audit.snapshot.newest import read_newest
from memory_audit.snapshot.publishing.draft import Draft
from memory_audit.snapshot.publishing.log_writer import LogWriter
from memory_audit.snapshot.publishing.publish import publish_manifest, sign_readable

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.bucket import BucketView
    from memory_audit.snapshot.layout import FileRef
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["MAX_REMOVED", "Purified", "RemovedEntry", "purify", "read_purified", "removal_record"]

MAX_REMOVED = 1_000_000
"""By one purification: what one attestation can state."""

MAX_REMOVED_BYTES = 144 << 20
"""Of all removals as an attestation states them: in base64, and with the run's configuration, they fit into one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedEntry:
    """One removal, as it stands in the log."""

    tenant: str
    entry_id: str
    index: int
    leaf_hash: str
    """Hex."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Purified:
    """A purification, done or planned."""

    store_id: str
    audited_version: int
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
    dry_run: bool = False,
) -> Purified:
    """Remove entries from the newest version of a store.

    Args:
        path: The store.
        snapshot: The version that was audited; it must still be the newest.
        removals: Tenant to entry id to the reason.
        keyring: Holds the auditor and the log keys.
        run_id: The audit run, named in tombstones and manifest.
        now_ms: Clock, Unix milliseconds.
        config: Parameters of the run, kept in the manifest (`recorded_settings`).
        models: Role to model id, kept in the manifest likewise.
        expires_ms: When readers must refuse the version; None is never.
        extra: Tenant to entry id to what its tombstone carries besides (hazard signatures).
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
    check_dated_near(newest, now_ms)
    if not any(removals.values()):
        raise UsageError("nothing to remove: the run proposes no entries")
    keyring.signers("auditor"), keyring.signers("log")  # a dry run must find a missing key too
    removed = _resolve(snapshot, removals)
    stones: dict[int, list[Tombstone]] = defaultdict(list)
    for item in removed:
        stone = Tombstone(
            tenant=item.tenant, entry_id=item.entry_id, removed_index=item.index,
            removed_leaf_hash=bytes.fromhex(item.leaf_hash), reason=item.reason, run_id=run_id,
            created_at_ms=now_ms, extra=extra.get(item.tenant, {}).get(item.entry_id, {}),
        )  # fmt: skip
        stones[bucket_of(item.tenant)].append(stone)
    _check_statable(removed)
    draft = Draft.of(snapshot)
    manifest = partial(
        draft.manifest, "purify", keyring, now_ms=now_ms, expires_ms=expires_ms, run_id=run_id, models=models,
        config=config,
    )  # fmt: skip
    sign_readable(path, manifest(), keyring)  # with the files as they are: what the run says of itself is the same
    plan = Purified(
        store_id=snapshot.store_id, audited_version=snapshot.version, audited_digest=snapshot.digest,
        version=snapshot.version + 1, digest=None, published=False, removed=removed,
        entries=snapshot.manifest.entries - len(removed),
    )  # fmt: skip
    if dry_run:
        return plan
    with hold(path):
        for bucket in sorted(stones):
            _rewrite_bucket(draft, snapshot.bucket(bucket), stones[bucket], keyring)
        published = publish_manifest(path, manifest(), keyring)
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


def read_purified(snapshot: VerifiedSnapshot, run_id: str, audited_digest: str) -> Purified | None:
    """Return what a run's purification published, where `snapshot` is what it made of the audited version; else None.

    For whoever was interrupted after it: what was removed stands in the log.
    """
    manifest = snapshot.manifest
    if (manifest.operation, manifest.run_id, manifest.parent) != ("purify", run_id, audited_digest):
        return None
    removed = [
        RemovedEntry(
            tenant=tenant, entry_id=stone.entry_id, index=stone.removed_index,
            leaf_hash=stone.removed_leaf_hash.hex(), reason=stone.reason,
        )
        for tenant in snapshot.tenants for stone in snapshot.tombstones(tenant) if stone.run_id == run_id
    ]  # fmt: skip
    return Purified(
        store_id=snapshot.store_id, audited_version=snapshot.version - 1, audited_digest=audited_digest,
        version=snapshot.version, digest=snapshot.digest, published=True,
        removed=tuple(sorted(removed, key=lambda item: (item.tenant, item.index))), entries=manifest.entries,
    )  # fmt: skip


def _resolve(snapshot: VerifiedSnapshot, removals: Mapping[str, Mapping[str, str]]) -> tuple[RemovedEntry, ...]:
    """Find each entry in its verified log."""
    result: list[RemovedEntry] = []
    for tenant in by_bucket(removals):
        if not removals[tenant]:
            continue
        log = snapshot.log(tenant)
        positions = {item.entry.entry_id: item.index for item in log.entries}
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
    return tuple(sorted(result, key=lambda item: (item.tenant, item.index)))


def _check_statable(removed: Sequence[RemovedEntry]) -> None:
    """Refuse what no attestation could state: once published, it would stay unattested."""
    size = sum(len(strict_json.encode(removal_record(item))) for item in removed)
    if len(removed) > MAX_REMOVED or size > MAX_REMOVED_BYTES:
        raise UsageError(
            f"{len(removed)} removals, which take {size} bytes in an attestation: at most {MAX_REMOVED} of "
            f"{MAX_REMOVED_BYTES} bytes can be attested; audit and purge a part of the tenants at a time"
        )


def _rewrite_bucket(draft: Draft, view: BucketView, stones: Sequence[Tombstone], keyring: Keyring) -> None:
    tombstones = {tenant: list(items) for tenant, items in view.tombstones.items()}
    logs: dict[str, LogWriter] = {}
    for stone in stones:
        if stone.tenant not in logs:
            logs[stone.tenant] = LogWriter.following(view, stone.tenant, keyring)
        tombstones.setdefault(stone.tenant, []).append(logs[stone.tenant].append_tombstone(stone))
    gone = {(stone.tenant, stone.removed_index) for stone in stones}
    draft.write(view.bucket, data=_without(view, gone), logs=logs, tombstones=tombstones, view=view)


def _without(view: BucketView, gone: Container[tuple[str, int]]) -> list[FileRef | pa.Table]:
    """Return the data files without removed entries as they are, and the others' remaining rows."""
    files = view.files.data if view.files else ()
    data: list[FileRef | pa.Table] = []
    for ref, table in zip(files, view.tables, strict=True):
        places = zip(table.column("tenant").to_pylist(), table.column("leaf_index").to_pylist(), strict=True)
        mask = [place not in gone for place in places]
        data.append(ref if all(mask) else table.filter(pa.array(mask)))
    return data
