"""Opening a store: the only way to a `VerifiedSnapshot`, and later stages accept nothing else.

Order of checks (each only on bytes that the one before vouches for):

1. the newest manifest: envelope, role signatures, version, policy, clock (`memory_audit.snapshot.manifest`);
2. the checkpoint files it names by digest, and the root over all checkpoints;
3. the pin, against the checkpoints and leaf hashes of the logs that changed since;
4. when a tenant is asked for: its bucket's files by digest, then its log (`memory_audit.snapshot.log`).

The newest manifest is the highest version present. Publishing is atomic, so a manifest that does not verify was not
left by a crash: it is refused by name, and no reader falls back to an older version in silence.
Others may publish and erase versions meanwhile (`memory_audit.snapshot.newest`).
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance.mirror import mirror_of
from memory_audit.provenance.tlog.checkpoint import log_origin
from memory_audit.provenance.trust_policy import TrustPolicy
from memory_audit.snapshot.bucket import BucketView, check_root, read_bucket, read_hashes, read_tree
from memory_audit.snapshot.checkpoints import LogRef, parse_checkpoints
from memory_audit.snapshot.layout import by_bucket, fetch, file_name, read_file, versions
from memory_audit.snapshot.log import VerifiedLog, verify_log
from memory_audit.snapshot.manifest import check_not_ahead, checkpoints_root
from memory_audit.snapshot.newest import at_newest, read_manifest, unless_erased
from memory_audit.snapshot.pin import Pin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.entry import Entry
    from memory_audit.provenance.leaf import Tombstone
    from memory_audit.provenance.mirror import Remote
    from memory_audit.provenance.tlog.checkpoint import Checkpoint
    from memory_audit.snapshot.manifest import Manifest

__all__ = ["VerifiedSnapshot", "check_pin", "load_logs", "open_snapshot", "read_manifest"]

BUCKETS_KEPT = 8
"""Buckets whose parsed files are kept while other tenants of theirs may be asked for."""

LARGE_LOG = 100_000
"""Leaves of a log, from which its bucket's files are not kept: they take as much as its entries."""

LOGS_KEPT = 64
"""Verified logs kept in memory, least recently used first out."""

TENANTS_SHOWN = 8
"""Of those that a store has, where it is asked for another one."""

_KEY = object()


class VerifiedSnapshot:
    """One version of a store. Obtain it with `open_snapshot`; what it returns has been verified."""

    __slots__ = ("_buckets", "_logs", "_manifest", "_path", "_refs", "_trust")

    def __init__(
        self, key: object, path: Path, trust: TrustPolicy, manifest: Manifest, refs: Mapping[str, LogRef]
    ) -> None:
        if key is not _KEY:
            raise TypeError("a VerifiedSnapshot comes from open_snapshot only")
        self._path = path
        self._trust = trust
        self._manifest = manifest
        self._refs = refs
        self._buckets: OrderedDict[int, BucketView] = OrderedDict()
        self._logs: OrderedDict[str, VerifiedLog] = OrderedDict()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as a place and what must be there: another process opens it itself, and verifies all it reads."""
        mirror = mirror_of(self._path)
        place = self._path.absolute() if mirror is None else mirror.remote
        return _reopened, (place, self._trust.envelope, self.version, self.digest)

    @property
    def path(self) -> Path:
        """Folder of the store."""
        return self._path

    @property
    def manifest(self) -> Manifest:
        """The verified manifest."""
        return self._manifest

    @property
    def trust(self) -> TrustPolicy:
        """The policy the snapshot was verified against."""
        return self._trust

    @property
    def store_id(self) -> str:
        """Random name of the store, part of every log's origin."""
        return self._manifest.store_id

    @property
    def version(self) -> int:
        """Version of the manifest."""
        return self._manifest.version

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the manifest's payload."""
        return self._manifest.digest

    @property
    def tenants(self) -> tuple[str, ...]:
        """All tenants, sorted by name."""
        return tuple(sorted(self._refs))

    @property
    def log_refs(self) -> Mapping[str, LogRef]:
        """Tenant to the log's place and unverified note. Reading tenants in order of `bucket` reads each file once."""
        return self._refs

    def log(self, tenant: str) -> VerifiedLog:
        """Verify and return one tenant's log.

        Raises:
            UsageError: no such tenant.
            VerificationError: a file, hash, root or signature does not verify.
            StalePlanError: a vacuum erased this version since it was opened.
        """
        if tenant not in self._refs:
            names = ", ".join(f"{name!r:.80}" for name in sorted(self._refs)[:TENANTS_SHOWN])
            more = f" and {rest} more" if (rest := len(self._refs) - TENANTS_SHOWN) > 0 else ""
            raise UsageError(f"no tenant {tenant!r:.80} in the store; it has {names}{more}")
        found = self._logs.get(tenant)
        if found is None:
            found = self._logs[tenant] = self._verify(self._refs[tenant])
            if len(self._logs) > LOGS_KEPT:
                self._logs.popitem(last=False)
        else:
            self._logs.move_to_end(tenant)
        return found

    def entries(self, tenant: str) -> tuple[Entry, ...]:
        """Live entries of a tenant, in leaf order. Raises like `log`."""
        return tuple(item.entry for item in self.log(tenant).entries)

    def quarantined(self, tenant: str) -> tuple[Entry, ...]:
        """Entries of a tenant in quarantine, in leaf order: no agent may read them. Raises like `log`."""
        return tuple(item.entry for item in self.log(tenant).quarantined)

    def tombstones(self, tenant: str) -> tuple[Tombstone, ...]:
        """Tombstones in force of a tenant, in leaf order. Raises like `log`."""
        return tuple(item.tombstone for item in self.log(tenant).tombstones)

    def checkpoint(self, tenant: str) -> Checkpoint:
        """Return the verified checkpoint of a tenant's log. Raises like `log`."""
        return self.log(tenant).checkpoint

    def leaf_hash(self, tenant: str, entry_id: str) -> bytes:
        """Leaf hash of a live entry.

        Raises:
            UsageError: no such entry.
            VerificationError: like `log`.
        """
        log = self.log(tenant)
        for item in log.entries:
            if item.entry.entry_id == entry_id:
                return log.leaf_hashes[item.index]
        raise UsageError(f"no entry {entry_id!r:.80} of tenant {tenant!r:.80} in version {self.version}")

    def pin(self) -> Pin:
        """Return the pin that this version leaves with its reader.

        Raises:
            VerificationError: a checkpoint does not verify.
        """
        logs = {}
        for tenant, ref in self._refs.items():
            where = f"checkpoint of tenant {tenant!r:.80}"
            checkpoint = self._trust.open_checkpoint(ref.note, origin=log_origin(self.store_id, tenant), where=where)
            logs[tenant] = checkpoint.size, checkpoint.root
        return Pin(store_id=self.store_id, version=self.version, digest=self.digest, logs=logs)

    def bucket(self, bucket: int, *, logs_only: bool = False) -> BucketView:
        """Return a bucket's files, checked by digest; with `logs_only` without entries and tombstones.

        Raises:
            VerificationError: a file is missing, or not the one that the manifest names.
            StalePlanError: a vacuum erased this version since it was opened.
        """
        found = self._buckets.get(bucket)
        if found is not None:
            self._buckets.move_to_end(bucket)
            return found
        with unless_erased(self._path, self._trust, self.version, self.store_id):
            found = read_bucket(
                self._path, bucket, self._manifest.buckets.get(bucket), refs=self._refs, store_id=self.store_id,
                trust=self._trust, logs_only=logs_only,
            )  # fmt: skip
        if not logs_only:
            self._buckets[bucket] = found
            if len(self._buckets) > BUCKETS_KEPT:
                self._buckets.popitem(last=False)
        return found

    def _verify(self, ref: LogRef) -> VerifiedLog:
        view = self.bucket(ref.bucket)
        if ref.size > LARGE_LOG:
            del self._buckets[ref.bucket]
        return verify_log(
            ref,
            view.tree(ref.tenant).leaf_hashes(),
            view.rows(ref.tenant),
            view.quarantined_rows(ref.tenant),
            view.tombstones.get(ref.tenant, ()),
            store_id=self.store_id,
            trust=self._trust,
        )


def open_snapshot(  # noqa: PLR0913 - a path, and five named conditions
    path: Path,
    trust: TrustPolicy,
    *,
    now_ms: int,
    pin: Pin | None = None,
    version: int | None = None,
    check_expiry: bool = True,
) -> VerifiedSnapshot:
    """Open a store for reading.

    Args:
        path: Folder of the store.
        trust: The installed policy.
        now_ms: The reader's clock, Unix milliseconds.
        pin: What this reader saw last; None on first use.
        version: An older version to read; None is the newest.
        check_expiry: False only for the owner who is about to publish a successor.

    Raises:
        UsageError: no store, or no such version.
        VerificationError: names the file, and what was expected and got.
        StalePlanError: a vacuum erased that version while it was opened.
    """

    def opened(wanted: int) -> VerifiedSnapshot:
        manifest = read_manifest(path, trust, wanted, now_ms=now_ms, check_expiry=check_expiry)
        if check_expiry or version is None:
            check_not_ahead(manifest, now_ms)
        refs = load_logs(path, manifest)
        if pin is not None:
            check_pin(path, trust, manifest, refs, pin)
        return VerifiedSnapshot(_KEY, path, trust, manifest, refs)

    if version is None:
        return at_newest(path, opened)
    if version not in (present := versions(path)):
        raise UsageError(f"no version {version} in {path}: it has {present[0]} to {present[-1]}")
    with unless_erased(path, trust, version):
        return opened(version)


@lru_cache(maxsize=1)
def _reopened(place: Path | Remote, policy: bytes, version: int, digest: str) -> VerifiedSnapshot:
    """Open the version that another process opened, once in this one. Raises like `open_snapshot`."""
    path = place if isinstance(place, Path) else place.attach()
    trust = TrustPolicy.read(policy, "the policy of the process that sent a snapshot")
    snapshot = open_snapshot(path, trust, now_ms=0, version=version, check_expiry=False)  # the sender looked at a clock
    if snapshot.digest != digest:
        raise VerificationError(
            f"manifests/{version}.json of {path}: digest is {snapshot.digest}, expected {digest}: this machine has "
            "another store there"
        )
    return snapshot


def load_logs(path: Path, manifest: Manifest) -> dict[str, LogRef]:
    """Read all checkpoint files of a manifest and check the root over them.

    Raises:
        VerificationError: a file does not verify, or the numbers or the root are not the manifest's.
    """
    where = f"manifests/{manifest.version}.json"
    refs: dict[str, LogRef] = {}
    fetch(path, (("checkpoints", bucket, files.checkpoints) for bucket, files in manifest.buckets.items()))
    for bucket, files in manifest.buckets.items():
        data = read_file(path, "checkpoints", bucket, files.checkpoints)
        name = file_name("checkpoints", bucket, files.checkpoints.sha256)
        refs.update((ref.tenant, ref) for ref in parse_checkpoints(data, bucket, files.hashes, name, tiled=files.tiled))
    root = checkpoints_root(refs[tenant].note for tenant in sorted(refs))
    if root != manifest.checkpoints_root:
        raise VerificationError(f"{where}: checkpoints_root is {manifest.checkpoints_root}, expected {root}")
    leaves = sum(ref.size for ref in refs.values())
    if (len(refs), leaves) != (manifest.tenants, manifest.leaves):
        raise VerificationError(
            f"{where}: states {manifest.tenants} tenants and {manifest.leaves} leaves, "
            f"expected {len(refs)} and {leaves}"
        )
    return refs


def check_pin(path: Path, trust: TrustPolicy, manifest: Manifest, refs: Mapping[str, LogRef], pin: Pin) -> None:
    """Refuse a store that shows less than the reader saw (`memory_audit.snapshot.pin`).

    Raises:
        VerificationError: names the attack.
    """
    where = f"manifests/{manifest.version}.json"
    if manifest.store_id != pin.store_id:
        raise VerificationError(f"{where}: store {manifest.store_id}, the pin is of store {pin.store_id}")
    if manifest.version < pin.version:
        raise VerificationError(f"{where}: version {manifest.version} is below the pinned {pin.version} (rollback)")
    if manifest.version == pin.version:
        if manifest.digest != pin.digest:
            raise VerificationError(
                f"{where}: digest is {manifest.digest}, pinned is {pin.digest} for the same version (equivocation)"
            )
        return
    read: dict[int, bytes] = {}
    for tenant in by_bucket(pin.logs):
        size, root = pin.logs[tenant]
        ref = refs.get(tenant)
        if ref is None:
            raise VerificationError(f"{where}: the log of tenant {tenant!r:.80} is pinned and missing (rollback)")
        origin = log_origin(manifest.store_id, tenant)
        checkpoint = trust.open_checkpoint(ref.note, origin=origin, where=f"checkpoint of tenant {tenant!r:.80}")
        if checkpoint.size < size:
            raise VerificationError(
                f"{where}: the log of tenant {tenant!r:.80} has {checkpoint.size} leaves, pinned are {size} (truncated)"
            )
        if (checkpoint.size, checkpoint.root) == (size, root):
            continue
        if ref.bucket not in read:
            read.clear()  # pins are visited in order of bucket: one file at a time
            read[ref.bucket] = read_hashes(path, ref.bucket, manifest.buckets[ref.bucket])
        tree = read_tree(path, ref, read[ref.bucket])
        check_root(tree, checkpoint, f"{where}: the log of tenant {tenant!r:.80}")
        prefix = tree.range_root(0, size)
        if prefix != root:
            raise VerificationError(
                f"{where}: the first {size} leaves of tenant {tenant!r:.80} have root {prefix.hex()}, "
                f"pinned is {root.hex()} (history rewritten)"
            )
