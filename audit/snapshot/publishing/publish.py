"""Publishing a version: sign what is new, write its files, then the manifest that makes them a version.

Life of a version:

1. The newest version is opened and verified, with the pin if there is one: nothing is built on a store that was
   rolled back or rewritten.
2. Per bucket that changes: new leaves are signed by their writers and hashed onto the log, the log signs a checkpoint,
   and data, leaf hashes, tombstones and checkpoints are written under their digests, each durable before the next.
3. The manifest is signed, read back as its readers will, and created as `manifests/N+1.json` if that name is absent:
   this is the only step that readers see. Of two publishers exactly one gets the name; the other learns that its plan
   is stale.

A kill before step 3 leaves files that no manifest names: harmless, and reused if the same content comes again. While
they are written the publisher holds the store (`layout.hold`), so that no vacuum takes them for left over.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.provenance import durable, merkle
from memory_audit.provenance.checkpoint import Checkpoint, log_origin, sign_checkpoint
from memory_audit.provenance.leaf import SIGNATURE_DOMAIN, entry_encoder
from memory_audit.snapshot.checkpoints import encode_checkpoints
from memory_audit.snapshot.columns.tables import (
    SignedEntry,
    file_parts,
    read_entry_table,
    write_entries,
    write_entry_table,
    write_tombstones,
)
from memory_audit.snapshot.layout import bucket_of, has_store, hold, manifest_path, put_file, read_file, versions
from memory_audit.snapshot.manifest import (
    MAX_SETTING_BYTES,
    BucketFiles,
    Manifest,
    check_dated_near,
    checkpoints_root,
    open_manifest,
    sign_manifest,
    tombstones_root,
)
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from memory_audit.entry import Entry
    from memory_audit.provenance.ed25519 import PrivateKey
    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.columns.tables import SignedTombstone
    from memory_audit.snapshot.layout import FileRef
    from memory_audit.snapshot.manifest import Operation
    from memory_audit.snapshot.pin import Pin
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = [
    "LogWriter", "Published", "append_entries", "create_store", "publish_again", "publish_manifest",
    "recorded_settings", "sign_readable", "write_bucket",
]  # fmt: skip

ROWS_PER_FILE = 16_384
"""More rows than this are split into several data files, which readers and verifiers can work on side by side."""

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


class LogWriter:
    """One tenant's log while a version is being built: appends leaves, then signs the checkpoint."""

    def __init__(self, store_id: str, tenant: str, hashes: Sequence[bytes] | bytes, keyring: Keyring) -> None:
        self.tenant = tenant
        self.origin = log_origin(store_id, tenant)
        self._packed = bytearray(hashes if isinstance(hashes, bytes) else b"".join(hashes))
        self._tree = merkle.CompactRange(bytes(self._packed))
        self._keyring = keyring
        self._encode = entry_encoder(self.origin, tenant)
        self._writers: dict[str, tuple[PrivateKey, str]] = {}

    @property
    def size(self) -> int:
        """Leaves so far: the index of the next."""
        return self._tree.size

    def packed(self) -> bytes:
        """Return the leaf hashes so far, concatenated."""
        return bytes(self._packed)

    def check_base(self, checkpoint: Checkpoint | None) -> None:
        """Compare the log so far with its verified checkpoint; None is a new log.

        Raises:
            VerificationError: the hashes are not those of the checkpoint.
        """
        root = merkle.EMPTY_ROOT if checkpoint is None else checkpoint.root
        if self._tree.root() != root:
            raise VerificationError(
                f"leaves of tenant {self.tenant!r:.80} have root {self._tree.root().hex()}, expected {root.hex()}"
            )

    def append_leaf(self, leaf: bytes) -> int:
        """Append a leaf and return its index."""
        digest = merkle.leaf_hash(leaf)
        self._packed += digest
        self._tree.append(digest)
        return self._tree.size - 1

    def append_entry(self, entry: Entry) -> SignedEntry:
        """Sign an entry for the next index and append it.

        Raises:
            UsageError: no key speaks for its principal.
        """
        index = self._tree.size
        writer = self._writers.get(entry.principal)
        if writer is None:
            key = self._keyring.writer_for(entry.principal)
            writer = self._writers[entry.principal] = key, key.public().key_id
        key, key_id = writer
        leaf = self._encode(entry, index)
        self.append_leaf(leaf)
        return SignedEntry(entry=entry, index=index, key_id=key_id, signature=key.sign(SIGNATURE_DOMAIN + leaf))

    def checkpoint(self) -> bytes:
        """Sign the log as it is now."""
        checkpoint = Checkpoint(origin=self.origin, size=self._tree.size, root=self._tree.root())
        return sign_checkpoint(checkpoint, self._keyring.signers("log"))


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
    store_id = secrets.token_hex(16) if store_id is None else store_id
    buckets: dict[int, BucketFiles] = {}
    notes: dict[str, bytes] = {}
    durable.ensure_folder(path / "manifests")
    with hold(path):
        for bucket, tenants in sorted(additions.items()):
            logs = {tenant: LogWriter(store_id, tenant, (), keyring) for tenant in sorted(tenants)}
            rows = [logs[tenant].append_entry(entry) for tenant in logs for entry in tenants[tenant]]
            buckets[bucket], new_notes = write_bucket(
                path, bucket, data=[write_entries(rows)], tombstones=(), logs=logs, unchanged={}
            )
            notes |= new_notes
        manifest = build_manifest(
            store_id=store_id, version=1, oldest=1, operation="import", parent=None, now_ms=now_ms,
            expires_ms=expires_ms, keyring=keyring, buckets=buckets, notes=notes,
        )  # fmt: skip
        return publish_manifest(path, manifest, keyring)


def append_entries(  # noqa: PLR0913
    path: Path,
    entries: Iterable[Entry],
    keyring: Keyring,
    *,
    now_ms: int,
    expires_ms: int | None = None,
    pin: Pin | None = None,
) -> Published:
    """Append entries to a store as its next version.

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
        buckets = dict(base.manifest.buckets)
        notes = {tenant: ref.note for tenant, ref in base.log_refs.items()}
        for bucket, additions in sorted(_by_bucket(entries).items()):
            buckets[bucket], new_notes = _append_to_bucket(base, bucket, additions, keyring)
            notes |= new_notes
        manifest = build_manifest(
            store_id=base.store_id, version=base.version + 1, oldest=base.manifest.oldest, operation="append",
            parent=base.digest, now_ms=now_ms, expires_ms=expires_ms, keyring=keyring, buckets=buckets, notes=notes,
        )  # fmt: skip
        return publish_manifest(path, manifest, keyring)


def write_bucket(  # noqa: PLR0913
    path: Path,
    bucket: int,
    *,
    data: Sequence[FileRef | pa.Table],
    tombstones: Sequence[SignedTombstone],
    logs: Mapping[str, LogWriter],
    unchanged: Mapping[str, tuple[bytes, bytes]],
) -> tuple[BucketFiles, dict[str, bytes]]:
    """Write the files of one bucket, in the order data, leaf hashes, tombstones, checkpoints.

    Args:
        path: The store.
        bucket: Number of the bucket.
        data: Files that stay as they are, and tables of live entries to write; leaf indices of a tenant rise.
        tombstones: All of the bucket.
        logs: The logs that changed.
        unchanged: Tenant to signed note and packed leaf hashes of the logs that did not.

    Returns:
        The bucket's files, and the new notes by tenant.
    """
    data_refs: list[FileRef] = []
    for item in data:
        if isinstance(item, pa.Table):
            parts = file_parts(item, ROWS_PER_FILE)
            data_refs += [put_file(path, "data", bucket, write_entry_table(part), part.num_rows) for part in parts]
        else:
            data_refs.append(item)
    packed = {tenant: log.packed() for tenant, log in logs.items()}
    packed |= {tenant: hashes for tenant, (_, hashes) in unchanged.items()}
    leaves = b"".join(packed[tenant] for tenant in sorted(packed))
    leaves_ref = put_file(path, "leaves", bucket, leaves, len(leaves) // merkle.HASH_BYTES)
    tombstones_ref = None
    if tombstones:
        tombstones_ref = put_file(path, "tombstones", bucket, write_tombstones(tombstones), len(tombstones))
    new_notes = {tenant: log.checkpoint() for tenant, log in logs.items()}
    notes = new_notes | {tenant: note for tenant, (note, _) in unchanged.items()}
    checkpoints_ref = put_file(path, "checkpoints", bucket, encode_checkpoints(notes), len(notes))
    files = BucketFiles(
        data=tuple(data_refs), leaves=leaves_ref, checkpoints=checkpoints_ref, tombstones=tombstones_ref
    )
    return files, new_notes


def publish_manifest(path: Path, manifest: Manifest, keyring: Keyring) -> Published:
    """Make a manifest the newest version, if no one else did.

    Raises:
        UsageError: no reader would accept it; nothing was published.
        StalePlanError: that version exists, or the keys were rotated meanwhile.
        IncompleteError: the disk is full.
    """
    data = sign_readable(path, manifest, keyring)
    final = manifest_path(path, manifest.version)
    durable.ensure_folder(final.parent)
    if manifest.version > 1 and versions(path)[-1] >= manifest.version:
        raise StalePlanError(f"version {manifest.version} of {path} exists: someone else published; start again")
    with keyring.unchanged():
        created = durable.create(final, data, scratch=path / "scratch")
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


def recorded_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what manifest and attestation say of a run's configuration or models.

    A text that is longer than their readers accept stands there as `sha256:` and its SHA-256 (hex): it can be compared
    with the run's, and a long prompt does not keep a finished audit from being purged.
    """
    return {name: _recorded(text) for name, text in settings.items()}


def _recorded(text: str) -> str:
    raw = text.encode()
    return text if len(raw) <= MAX_SETTING_BYTES else f"sha256:{hashlib.sha256(raw).hexdigest()}"


def check_new_entries(tenant: str, entries: Sequence[Entry], known: Mapping[str, str]) -> None:
    """Check ids and parents of entries before they are signed.

    Args:
        tenant: For error messages.
        entries: In the order they will be appended.
        known: Ids that the log has ("live") or had ("removed"): at least those that the entries name.

    Raises:
        UsageError: an id twice, or a parent that comes no earlier.
    """
    seen = dict(known)
    for entry in entries:
        where = f"tenant {tenant!r:.80}: entry {entry.entry_id!r:.80}"
        state = seen.get(entry.entry_id)
        if state is not None:
            how = "was removed and may not come back" if state == "removed" else "is there already"
            raise UsageError(f"{where} {how}: entry ids are used once")
        for parent in entry.parents:
            if parent.entry_id not in seen:
                raise UsageError(f"{where} names parent {parent.entry_id!r:.80}, which is no earlier entry")
        seen[entry.entry_id] = "live"


def _append_to_bucket(
    base: VerifiedSnapshot, bucket: int, additions: Mapping[str, Sequence[Entry]], keyring: Keyring
) -> tuple[BucketFiles, dict[str, bytes]]:
    view = base.bucket(bucket, ids_only=True)
    logs: dict[str, LogWriter] = {}
    rows: list[SignedEntry] = []
    for tenant in sorted(additions):
        named = {entry.entry_id for entry in additions[tenant]}
        named |= {parent.entry_id for entry in additions[tenant] for parent in entry.parents}
        known = dict.fromkeys(view.live_ids(tenant, named), "live")
        known |= {item.tombstone.entry_id: "removed" for item in view.tombstones.get(tenant, ())}
        check_new_entries(tenant, additions[tenant], known)
        logs[tenant] = LogWriter(base.store_id, tenant, view.packed_hashes(tenant), keyring)
        logs[tenant].check_base(view.checkpoint(tenant))
        rows.extend(logs[tenant].append_entry(entry) for entry in additions[tenant])
    table = write_entries(rows)
    kept: tuple[FileRef, ...] = view.files.data if view.files else ()
    if kept and kept[-1].rows < MERGE_BELOW_ROWS:
        data = read_file(base.path, "data", bucket, kept[-1])
        where = f"data/b={bucket:02x}/{kept[-1].sha256}.parquet"
        last = read_entry_table(data, where, rows=kept[-1].rows)
        table = pa.concat_tables([last, table]).sort_by([("tenant", "ascending"), ("leaf_index", "ascending")])
        kept = kept[:-1]
    tombstones = [item for tenant in sorted(view.tombstones) for item in view.tombstones[tenant]]
    return write_bucket(
        base.path, bucket, data=[*kept, table], tombstones=tombstones, logs=logs, unchanged=view.others(logs)
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


def build_manifest(  # noqa: PLR0913 - the parts of a manifest, all named
    *,
    store_id: str,
    version: int,
    oldest: int,
    operation: Operation,
    parent: str | None,
    now_ms: int,
    expires_ms: int | None,
    keyring: Keyring,
    buckets: Mapping[int, BucketFiles],
    notes: Mapping[str, bytes],
    run_id: str = "",
    models: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
) -> Manifest:
    return Manifest(
        store_id=store_id,
        version=version,
        oldest=oldest,
        operation=operation,
        parent=parent,
        created_ms=now_ms,
        expires_ms=expires_ms,
        run_id=run_id,
        policy_version=keyring.policy.version,
        policy_sha256=keyring.policy.digest,
        models=recorded_settings(models or {}),
        config=recorded_settings(config or {}),
        entries=sum(ref.rows for files in buckets.values() for ref in files.data),
        leaves=sum(files.leaves.rows for files in buckets.values()),
        tenants=len(notes),
        checkpoints_root=checkpoints_root(notes[tenant] for tenant in sorted(notes)),
        tombstones_root=tombstones_root(buckets),
        buckets=buckets,
    )
