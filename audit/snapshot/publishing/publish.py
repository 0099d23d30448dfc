"""Publishing a version: sign what is new, write its files, then the manifest that makes them a version.

Life of a version:

1. The newest version is opened and verified, with the pin if there is one: nothing is built on a store that was
   rolled back or rewritten.
2. Per bucket that changes: new leaves are signed by their writers and hashed onto the log, the log signs a checkpoint,
   and data, tiles, ids, tombstones and checkpoints are written under their digests, all durable before the next step.
3. The manifest is signed, read back as its readers will, and created as `manifests/N+1.json` if that name is absent:
   this is the only step that readers see. Of two publishers exactly one gets the name; the other learns that its plan
   is stale.

A kill before step 3 leaves files that no manifest names: harmless, and reused if the same content comes again. While
they are written the publisher holds the store (`layout.hold`), so that no vacuum takes them for left over.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.provenance import durable
from memory_audit.provenance.tlog.tiles import TiledTree
from memory_audit.snapshot.bucket import read_data_file
from memory_audit.snapshot.columns.tables import write_entries
from memory_audit.snapshot.ids import gone_ids, id_digests, known_ids, read_runs, with_ids
from memory_audit.snapshot.layout import bucket_of, create_manifest, has_store, hold, versions
from memory_audit.snapshot.manifest import check_dated_near, open_manifest, sign_manifest
from memory_audit.snapshot.publishing.draft import Draft
from memory_audit.snapshot.publishing.log_writer import LogWriter
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from memory_audit.entry import Entry
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.bucket import BucketView
    from memory_audit.snapshot.columns.tables import SignedEntry
    from memory_audit.snapshot.ids import Ids
    from memory_audit.snapshot.manifest import Manifest, Operation
    from memory_audit.snapshot.pin import Pin

__all__ = ["Published", "append_entries", "create_store", "publish_again", "publish_manifest", "sign_readable"]

_IS = {
    "live": "is there already", "removed": "was removed and may not come back",
    "in quarantine": "is in quarantine, from where `memaudit release` puts it back",
}  # fmt: skip

MERGE_BELOW_ROWS = 4_096
"""The last data file of a bucket below this is rewritten with what is appended: bounds the number of small files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A version that is now there for readers."""

    store_id: str
    version: int
    digest: str
    """SHA-256 (hex) of the manifest's payload."""

    entries: int
    """Live entries in all logs."""

    tenants: int


def create_store(  # noqa: PLR0913
    path: Path,
    entries: Iterable[Entry],
    keyring: Keyring,
    *,
    now_ms: int,
    expires_ms: int | None = None,
    store_id: str | None = None,
) -> Published:
    """Create a store: version 1 holds `entries`, each tenant's in the order given.

    Args:
        path: A folder that is absent or empty.
        entries: At least one; parents come before their children.
        keyring: Holds the log key and a writer key for each principal.
        now_ms: Clock, Unix milliseconds.
        expires_ms: When readers must refuse the version; None is never.
        store_id: 32 hex digits; None draws them.

    Raises:
        UsageError: no entries, a repeated id, an unknown parent, a store that exists, or a missing key.
        IncompleteError: the disk is full; no store was created.
        StalePlanError: another process created it first.
    """
    if has_store(path):
        raise UsageError(f"{path} holds a store already: append to it, or choose another folder")
    additions = _by_bucket(entries)
    for tenants in additions.values():
        for tenant in sorted(tenants):
            check_new_entries(tenant, tenants[tenant], {})
    draft = Draft(path=path, store_id=store_id or secrets.token_hex(16), base=None)
    durable.ensure_folder(path / "manifests")
    with hold(path):
        for bucket, tenants in sorted(additions.items()):
            logs = {tenant: LogWriter(draft.store_id, tenant, TiledTree(), keyring) for tenant in sorted(tenants)}
            rows = [logs[tenant].append_entry(entry) for tenant in logs for entry in tenants[tenant]]
            draft.write(bucket, data=[write_entries(rows)], logs=logs, ids=with_ids((), _digests(tenants)))
        return publish_manifest(path, draft.manifest("import", keyring, now_ms=now_ms, expires_ms=expires_ms), keyring)


def append_entries(  # noqa: PLR0913
    path: Path,
    entries: Iterable[Entry],
    keyring: Keyring,
    *,
    now_ms: int,
    pin: Pin | None = None,
    expires_ms: int | None = None,
) -> Published:
    """Append entries to a store as its next version; the cost follows what is appended, and not the store.

    What is verified: the newest manifest, with the pin by the tiles of the prefix that it names; the checkpoints of all
    logs by digest; of each log that grows the checkpoint's signature and, against its root, the right edge of the tree;
    the ids that the bucket ever had, and its last data file where that is small enough to be written anew, by digest.
    Neither older tiles nor the other entries, tombstones and signatures are read: `memory_audit.snapshot.verify` does.

    Raises:
        UsageError: no entries, an id that the log has or had, an unknown parent, a missing key, or a clock far ahead of
            the newest version.
        VerificationError: the newest version does not verify, or is behind the pin.
        IncompleteError: the disk is full; the newest version is unchanged.
        StalePlanError: another process published first; nothing was appended.
    """
    with hold(path):
        base = open_snapshot(path, keyring.policy, now_ms=now_ms, pin=pin, check_expiry=False)
        check_dated_near(base.manifest, now_ms)
        draft = Draft.of(base)
        for bucket, additions in sorted(_by_bucket(entries).items()):
            _append_to_bucket(draft, base.bucket(bucket, logs_only=True), additions, keyring)
        return publish_manifest(path, draft.manifest("append", keyring, now_ms=now_ms, expires_ms=expires_ms), keyring)


def publish_manifest(path: Path, manifest: Manifest, keyring: Keyring) -> Published:
    """Make a manifest the newest version, if no one else did.

    Raises:
        UsageError: no reader would accept it; nothing was published.
        StalePlanError: that version exists, or the keys were rotated meanwhile.
        IncompleteError: the disk is full.
    """
    data = sign_readable(path, manifest, keyring)
    if manifest.version > 1 and versions(path)[-1] >= manifest.version:
        raise StalePlanError(f"version {manifest.version} of {path} exists: someone else published; start again")
    with keyring.unchanged():
        created = create_manifest(path, manifest.version, data)
    if not created:
        raise StalePlanError(f"version {manifest.version} of {path} exists: someone else published; start again")
    return Published(
        store_id=manifest.store_id, version=manifest.version, digest=manifest.digest, entries=manifest.entries,
        tenants=manifest.tenants,
    )  # fmt: skip


def publish_again(  # noqa: PLR0913 - a path, and what differs
    path: Path, newest: Manifest, keyring: Keyring, *, operation: Operation, now_ms: int, oldest: int
) -> Published:
    """Publish a successor of the newest version with the same memories. Raises like `publish_manifest`."""
    successor = replace(
        newest, version=newest.version + 1, oldest=oldest, operation=operation, parent=newest.digest,
        created_ms=now_ms, run_id="", models={}, config={}, policy_version=keyring.policy.version,
        policy_sha256=keyring.policy.digest,
    )  # fmt: skip
    return publish_manifest(path, successor, keyring)


def sign_readable(path: Path, manifest: Manifest, keyring: Keyring) -> bytes:
    """Sign a manifest and read it back: behind one that readers refuse, a store can be neither read nor continued.

    An expired one passes: whoever publishes a successor may still read it.

    Raises:
        UsageError: no reader would accept it, or a key is missing.
    """
    data, where = sign_manifest(manifest, keyring), f"manifests/{manifest.version}.json"
    try:
        open_manifest(
            data, keyring.policy, version=manifest.version, now_ms=manifest.created_ms, check_expiry=False, where=where
        )
    except VerificationError as error:
        raise UsageError(
            f"version {manifest.version} of {path} is not published, no reader would accept it: {error}; shorten or "
            "leave out what is named there"
        ) from None
    return data


def check_new_entries(tenant: str, entries: Sequence[Entry], known: Mapping[str, str]) -> None:
    """Check ids and parents of entries before they are signed.

    Args:
        tenant: For error messages.
        entries: In the order they will be appended.
        known: Ids that the log has ("live") or had ("removed", "in quarantine"): at least those that the entries name.

    Raises:
        UsageError: an id twice, or a parent that comes no earlier.
    """
    seen = dict(known)
    for entry in entries:
        where = f"tenant {tenant!r:.80}: entry {entry.entry_id!r:.80}"
        state = seen.get(entry.entry_id)
        if state is not None:
            raise UsageError(f"{where} {_IS[state]}: entry ids are used once")
        for parent in entry.parents:
            if parent.entry_id not in seen:
                raise UsageError(f"{where} names parent {parent.entry_id!r:.80}, which is no earlier entry")
        seen[entry.entry_id] = "live"


def _append_to_bucket(
    draft: Draft, view: BucketView, additions: Mapping[str, Sequence[Entry]], keyring: Keyring
) -> None:
    logs: dict[str, LogWriter] = {}
    rows: list[SignedEntry] = []
    runs = read_runs(draft.path, view.bucket, view.files)
    for tenant in sorted(additions):
        new = {entry.entry_id for entry in additions[tenant]}
        parents = {parent.entry_id for entry in additions[tenant] for parent in entry.parents}
        known = dict.fromkeys(known_ids(runs, tenant, new | parents), "live")
        if not new.isdisjoint(known) and view.files is not None:  # refused, and told why
            known |= gone_ids(draft.path, view.bucket, view.files, tenant)
        check_new_entries(tenant, additions[tenant], known)
        log = logs[tenant] = LogWriter.following(view, tenant, keyring)
        rows.extend(log.append_entry(entry) for entry in additions[tenant])
    table = write_entries(rows)
    kept = view.files.data if view.files else ()
    if kept and kept[-1].rows < MERGE_BELOW_ROWS:
        last = read_data_file(draft.path, view.bucket, kept[-1])
        table = pa.concat_tables([last, table]).sort_by([("tenant", "ascending"), ("leaf_index", "ascending")])
        kept = kept[:-1]
    draft.write(
        view.bucket, data=[*kept, table], logs=logs, ids=with_ids(runs, _digests(additions)),
        tombstones=view.files.tombstones if view.files else None,
        quarantine=view.files.quarantine if view.files else (), view=view,
    )  # fmt: skip


def _digests(additions: Mapping[str, Sequence[Entry]]) -> Ids:
    return np.concatenate(
        [id_digests(tenant, (entry.entry_id for entry in entries)) for tenant, entries in additions.items()]
    )


def _by_bucket(entries: Iterable[Entry]) -> dict[int, dict[str, list[Entry]]]:
    by_tenant: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_tenant[entry.tenant].append(entry)
    if not by_tenant:
        raise UsageError("no entries: the input is empty, and an empty store cannot be audited")
    buckets: dict[int, dict[str, list[Entry]]] = defaultdict(dict)
    for tenant, items in by_tenant.items():
        buckets[bucket_of(tenant)][tenant] = items
    return buckets
