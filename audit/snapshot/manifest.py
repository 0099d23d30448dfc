"""The signed manifest: one version of a store, by the digests of all its files.

The payload of a DSSE envelope (`memory_audit.provenance.dsse`), canonical JSON:

    {"format": "memaudit manifest v3", "store_id": "6d1f…", "version": 7, "oldest": 1, "operation": "purify",
     "parent": SHA-256 of manifest 6's payload or null, "created_ms": …, "expires_ms": … or null, "run_id": "…" or "",
     "policy": {"version": 1, "sha256": …}, "models": {…}, "config": {…},
     "entries": live entries, "leaves": leaves of all logs, "tenants": logs,
     "checkpoints_root": RFC 6962 root over the signed checkpoints in order of tenant,
     "tombstones_root": RFC 6962 root over the digests of the tombstone files in order of bucket,
     "buckets": [{"bucket": 109, "data": [{"sha256", "size", "rows"} …], "edges": {…}, "ids": [{…} …],
                  "checkpoints": {…}, "tombstones": {…} or null, "quarantine": [{…} …]} …]}

A bucket that was last written to by a program that knew no tiles has `leaves` in the place of `edges` and `ids`. A
version all of whose buckets are such says "memaudit manifest v1" or "memaudit manifest v2" as those programs did: v2
where it has memories in quarantine, or puts some there or releases them, and v1, with no `quarantine`, else.

Its digest is the SHA-256 of the payload. A verifier MUST reject a manifest that is not signed by the threshold of the
role its operation needs (log: import, append; auditor: all others), one whose version is not its file's, one made under
a newer policy or another policy of the same version, one that names a bucket, or a file of a bucket's entries or ids,
twice, one of another format than its buckets have, and, as the newest version, one from the future or one that has
expired. Of older versions the dates do not count: one dated by a clock that ran ahead is set right by a successor
(`memory_audit.snapshot.publishing.redate`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from memory_audit.entry import MAX_TIME_MS
from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import dsse, strict_json
from memory_audit.provenance.tlog.merkle import MAX_TREE_SIZE, leaf_hash, root
from memory_audit.snapshot.layout import MAX_FILE_BYTES, MAX_VERSION, FileRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.trust_policy import RoleName, TrustPolicy
    from memory_audit.snapshot.layout import Kind

__all__ = [
    "MAX_MANIFEST_BYTES",
    "BucketFiles",
    "Manifest",
    "Operation",
    "checkpoints_root",
    "files_of",
    "open_manifest",
    "sign_manifest",
    "tombstones_root",
]

Operation = Literal["import", "append", "purify", "quarantine", "release", "vacuum"]

ROLE_OF: Mapping[Operation, RoleName] = MappingProxyType({
    "import": "log", "append": "log", "purify": "auditor", "quarantine": "auditor", "release": "auditor",
    "vacuum": "auditor",
})  # fmt: skip

ROLES = tuple(sorted(set(ROLE_OF.values()), reverse=True))

PAYLOAD_TYPE = "application/vnd.memaudit.manifest+json"

MAX_MANIFEST_BYTES = 64 << 20
"""256 buckets of 800 files each; base64 in the envelope included."""

MAX_CLOCK_SKEW_MS = 10 * 60 * 1000
"""A manifest may be this much ahead of the reader's clock; more is a fast-forward."""

MAX_GAP_MS = 2 * 366 * 24 * 3_600_000
"""A version may be dated this much after the one before: a store in use has one more often than every second year, and
a clock that is set to a wrong year is a likelier reason."""

BUCKETS = 256
MAX_DATA_FILES = 10_000
MAX_SETTINGS = 256
MAX_SETTING_BYTES = 65_536

OTHER_POLICY = (
    " in the policy used: either this is not the publisher's work, or the store is signed under another or newer "
    "policy; give the publisher's with --keys or --trust"
)

_FORMAT, _FORMAT_WITH_QUARANTINE, _FORMAT_WITH_TILES = (f"memaudit manifest v{number}" for number in (1, 2, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFiles:
    """The files of one bucket."""

    data: tuple[FileRef, ...]
    """Within a tenant, leaf indices rise from file to file."""

    hashes: FileRef
    """Of the logs: the right edges of their trees where `ids` is there, else all leaf hashes."""

    checkpoints: FileRef
    tombstones: FileRef | None
    quarantine: tuple[FileRef, ...] = ()
    """Ordered as `data`."""

    ids: tuple[FileRef, ...] | None = None
    """Which ids the logs ever had; None in a bucket that was last written to by a program that knew no tiles."""

    @property
    def tiled(self) -> bool:
        """Whether the logs' trees are in tiles."""
        return self.ids is not None

    @property
    def hashes_kind(self) -> Kind:
        """Where `hashes` lies."""
        return "edges" if self.tiled else "leaves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One version of a store."""

    store_id: str
    version: int
    oldest: int
    """The oldest version still kept: all from here to `version` are there."""

    operation: Operation
    parent: str | None
    created_ms: int
    expires_ms: int | None
    run_id: str
    """The audit run behind a purification or a quarantine, else empty."""

    policy_version: int
    policy_sha256: str
    models: Mapping[str, str]
    config: Mapping[str, str]
    entries: int
    leaves: int
    tenants: int
    checkpoints_root: str
    tombstones_root: str
    buckets: Mapping[int, BucketFiles]

    def payload(self) -> bytes:
        """Return the bytes that are signed."""
        return strict_json.encode(
            {
                "format": self.format,
                "store_id": self.store_id,
                "version": self.version,
                "oldest": self.oldest,
                "operation": self.operation,
                "parent": self.parent,
                "created_ms": self.created_ms,
                "expires_ms": self.expires_ms,
                "run_id": self.run_id,
                "policy": {"version": self.policy_version, "sha256": self.policy_sha256},
                "models": dict(self.models),
                "config": dict(self.config),
                "entries": self.entries,
                "leaves": self.leaves,
                "tenants": self.tenants,
                "checkpoints_root": self.checkpoints_root,
                "tombstones_root": self.tombstones_root,
                "buckets": [
                    _bucket_record(bucket, self.buckets[bucket], self.format) for bucket in sorted(self.buckets)
                ],
            }
        )

    @property
    def format(self) -> str:
        """What it says it is: readers that do not know tiles, or quarantine, must not read a version with them."""
        if any(files.tiled for files in self.buckets.values()):
            return _FORMAT_WITH_TILES
        known = self.quarantined == 0 and self.operation not in {"quarantine", "release"}
        return _FORMAT if known else _FORMAT_WITH_QUARANTINE

    @property
    def quarantined(self) -> int:
        """Number of entries in quarantine."""
        return sum(ref.rows for files in self.buckets.values() for ref in files.quarantine)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the payload."""
        return hashlib.sha256(self.payload()).hexdigest()


def files_of(manifest: Manifest) -> Iterator[tuple[Kind, int, FileRef]]:
    """Every file that a manifest names, with its kind and bucket: all but full tiles."""
    for bucket, files in manifest.buckets.items():
        for ref in files.data:
            yield "data", bucket, ref
        for ref in files.quarantine:
            yield "quarantine", bucket, ref
        yield files.hashes_kind, bucket, files.hashes
        for ref in files.ids or ():
            yield "ids", bucket, ref
        yield "checkpoints", bucket, files.checkpoints
        if files.tombstones is not None:
            yield "tombstones", bucket, files.tombstones


def checkpoints_root(notes: Iterable[bytes]) -> str:
    """Root (hex) over signed checkpoints in order of tenant."""
    return root(leaf_hash(note) for note in notes).hex()


def tombstones_root(buckets: Mapping[int, BucketFiles]) -> str:
    """Root (hex) over the digests of all tombstone files in order of bucket."""
    files = [buckets[bucket].tombstones for bucket in sorted(buckets)]
    return root(leaf_hash(bytes.fromhex(file.sha256)) for file in files if file is not None).hex()


def sign_manifest(manifest: Manifest, keyring: Keyring) -> bytes:
    """Return the signed file."""
    return dsse.seal(PAYLOAD_TYPE, manifest.payload(), keyring.signers(ROLE_OF[manifest.operation]))


def open_manifest(  # noqa: PLR0913 - what a reader knows, all named
    data: bytes, trust: TrustPolicy, *, version: int, now_ms: int, check_expiry: bool, where: str
) -> Manifest:
    """Verify and read a manifest.

    Args:
        data: The file.
        trust: The policy that the reader keeps outside the store.
        version: The version its file name states.
        now_ms: The reader's clock, Unix milliseconds.
        check_expiry: False only for history, and for the owner who publishes a successor.
        where: The file's name, for errors.

    Raises:
        VerificationError: names `where`, and what was expected and got.
    """
    envelope = dsse.parse_envelope(data, PAYLOAD_TYPE, max_bytes=MAX_MANIFEST_BYTES, where=where)
    known = {key_id: key for role in ROLES for key_id, key in trust.roles[role].keys.items()}
    dsse.verify_envelope(envelope, known, 1, " or ".join(ROLES), advice=OTHER_POLICY)  # before a stranger's is parsed
    manifest = _parse(strict_json.Fields(envelope.json(MAX_MANIFEST_BYTES), where))  # to learn which role must sign
    if manifest.policy_version > trust.version:
        raise VerificationError(
            f"{where}: made under policy {manifest.policy_version}, the installed policy is {trust.version}: "
            "install the rotated policy"
        )
    role = ROLE_OF[manifest.operation]
    keys = trust.manifest_keys(role, manifest.store_id, manifest.version)
    for key_id, _ in envelope.signatures:
        if key_id in trust.roles[role].keys and key_id not in keys:
            first = trust.revoked[key_id].manifests.get(manifest.store_id, 0)
            since = f"from version {first} of this store on" if first else "for all of this store"
            name = trust.roles[role].keys[key_id].name
            raise VerificationError(f"{where}: signed by {name}, which policy {trust.version} revokes {since}")
    dsse.verify_envelope(envelope, keys, trust.roles[role].threshold, role, advice=OTHER_POLICY)
    if manifest.version != version:
        raise VerificationError(f"{where}: holds version {manifest.version}, expected {version}")
    if manifest.policy_version == trust.version and manifest.policy_sha256 != trust.digest:
        raise VerificationError(f"{where}: policy digest is {manifest.policy_sha256}, expected {trust.digest}")
    if check_expiry and manifest.expires_ms is not None and now_ms > manifest.expires_ms:
        raise VerificationError(
            f"{where}: expired at {manifest.expires_ms} ms, it is {now_ms} ms: ask the publisher for a newer version"
        )
    return manifest


def check_not_ahead(manifest: Manifest, now_ms: int) -> None:
    """Refuse a newest version from the future.

    Raises:
        VerificationError: it is more than MAX_CLOCK_SKEW_MS ahead of the clock.
    """
    if manifest.created_ms > now_ms + MAX_CLOCK_SKEW_MS:
        raise VerificationError(
            f"manifests/{manifest.version}.json: created at {manifest.created_ms} ms, in the future of {now_ms} ms: "
            "its publisher's clock was ahead, or this one is behind; where this one is right, whoever has the keys "
            "sets it right with `memaudit redate`"
        )


def check_dated_near(base: Manifest, now_ms: int) -> None:
    """Refuse to publish a version that would be dated far after the one before.

    Raises:
        UsageError: it would be more than MAX_GAP_MS.
    """
    if now_ms - base.created_ms > MAX_GAP_MS:
        days = (now_ms - base.created_ms) // 86_400_000
        raise UsageError(
            f"by this clock version {base.version} is {days} days old: where the clock is ahead, set it right, since "
            "readers would refuse what it dates; where it is right, `memaudit redate` first, and start again"
        )


def _bucket_record(bucket: int, files: BucketFiles, stated: str) -> dict[str, Any]:
    record = {
        "bucket": bucket,
        "data": [_file_record(ref) for ref in files.data],
        files.hashes_kind: _file_record(files.hashes),
        "checkpoints": _file_record(files.checkpoints),
        "tombstones": None if files.tombstones is None else _file_record(files.tombstones),
    }
    if files.ids is not None:
        record["ids"] = [_file_record(ref) for ref in files.ids]
    return record if stated == _FORMAT else record | {"quarantine": [_file_record(ref) for ref in files.quarantine]}


def _file_record(ref: FileRef) -> dict[str, Any]:
    return {"sha256": ref.sha256, "size": ref.size, "rows": ref.rows}


def _parse(fields: strict_json.Fields) -> Manifest:
    where = fields.where
    stated = fields.text("format")
    if stated not in {_FORMAT, _FORMAT_WITH_QUARANTINE, _FORMAT_WITH_TILES}:
        raise VerificationError(f"{where}: not a {_FORMAT}, v2 or v3")
    operation = fields.text("operation")
    if operation not in get_args(Operation):
        raise VerificationError(f"{where}: unknown operation {operation!r:.40}")
    policy = fields.object("policy")
    parent = fields.take("parent")
    if parent is not None and not (isinstance(parent, str) and len(parent) == 64):  # noqa: PLR2004 - hex SHA-256
        raise VerificationError(f"{where}: 'parent' is {parent!r:.80}, expected a SHA-256 or null")
    version = fields.whole("version", MAX_VERSION, 1)
    buckets: dict[int, BucketFiles] = {}
    for item in fields.objects("buckets", BUCKETS):
        bucket = item.whole("bucket", BUCKETS - 1)
        if bucket in buckets:
            raise VerificationError(f"{where}: bucket {bucket} appears twice")
        here, tiled = f"{where}: bucket {bucket}", item.has("ids")
        buckets[bucket] = BucketFiles(
            data=_parse_files(item, "data", here),
            hashes=_parse_file(item.object("edges" if tiled else "leaves")),
            checkpoints=_parse_file(item.object("checkpoints")),
            tombstones=None if item.is_null("tombstones") else _parse_file(item.object("tombstones")),
            quarantine=() if stated == _FORMAT else _parse_files(item, "quarantine", here),
            ids=_parse_files(item, "ids", here) if tiled else None,
        )
        item.done()
    manifest = Manifest(
        store_id=fields.hex_bytes("store_id", 16).hex(),
        version=version,
        oldest=fields.whole("oldest", version, 1),
        operation=operation,  # type: ignore[arg-type]  # checked above
        parent=parent,
        created_ms=fields.whole("created_ms", MAX_TIME_MS),
        expires_ms=fields.whole_or_none("expires_ms", MAX_TIME_MS),
        run_id=fields.text("run_id", may_be_empty=True),
        policy_version=policy.whole("version", MAX_VERSION, 1),
        policy_sha256=policy.hex_bytes("sha256", 32).hex(),
        models=MappingProxyType(fields.texts("models", MAX_SETTINGS, MAX_SETTING_BYTES)),
        config=MappingProxyType(fields.texts("config", MAX_SETTINGS, MAX_SETTING_BYTES)),
        entries=fields.whole("entries", MAX_TREE_SIZE),
        leaves=fields.whole("leaves", MAX_TREE_SIZE),
        tenants=fields.whole("tenants", MAX_TREE_SIZE),
        checkpoints_root=fields.hex_bytes("checkpoints_root", 32).hex(),
        tombstones_root=fields.hex_bytes("tombstones_root", 32).hex(),
        buckets=MappingProxyType(buckets),
    )
    policy.done()
    fields.done()
    if stated != manifest.format:
        raise VerificationError(f"{where}: format is {stated!r:.60}, expected {manifest.format}")
    if manifest.tombstones_root != (expected := tombstones_root(buckets)):
        raise VerificationError(f"{where}: tombstones_root is {manifest.tombstones_root}, expected {expected}")
    rows = sum(ref.rows for files in buckets.values() for ref in files.data)
    if manifest.entries != rows:
        raise VerificationError(f"{where}: states {manifest.entries} entries, its data files hold {rows}")
    return manifest


def _parse_files(bucket: strict_json.Fields, kind: Kind, where: str) -> tuple[FileRef, ...]:
    files: dict[str, FileRef] = {}
    for item in bucket.objects(kind, MAX_DATA_FILES):
        ref = _parse_file(item)
        if ref.sha256 in files:  # its entries would be there twice
            raise VerificationError(f"{where}: {kind} file {ref.sha256} appears twice")
        files[ref.sha256] = ref
    return tuple(files.values())


def _parse_file(fields: strict_json.Fields) -> FileRef:
    ref = FileRef(
        sha256=fields.hex_bytes("sha256", 32).hex(),
        size=fields.whole("size", MAX_FILE_BYTES),
        rows=fields.whole("rows", MAX_TREE_SIZE),
    )
    fields.done()
    return ref
