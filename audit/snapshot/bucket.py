"""The files of one bucket, read and checked by digest; what they say of a tenant `snapshot.log` verifies.

The trees of its logs are read tile by tile, as far as they are asked for: their right edges are checked by digest, and
each full tile by the hash above it (`memory_audit.provenance.tlog.tiles`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_audit.errors import VerificationError
from memory_audit.provenance.tlog.checkpoint import Checkpoint, log_origin
from memory_audit.provenance.tlog.tiles import TiledTree
from memory_audit.snapshot.columns.tables import ENTRY_SCHEMA, SignedTombstone, read_table, read_tombstones
from memory_audit.snapshot.layout import file_name, file_path, read_file, read_tile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.checkpoints import LogRef
    from memory_audit.snapshot.layout import FileRef, Kind
    from memory_audit.snapshot.manifest import BucketFiles, Manifest

__all__ = [
    "BucketView", "check_root", "read_bucket", "read_data_file", "read_hashes", "read_stones", "read_tree",
    "tile_paths",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketView:
    """One bucket of one version. Bytes match the manifest's digests; signatures inside are not verified yet."""

    path: Path
    """The store."""

    bucket: int
    files: BucketFiles | None
    """None where the bucket is still empty."""

    tables: tuple[pa.Table, ...]
    """One per data file; like `quarantine` and `tombstones` empty where only the logs are read."""

    quarantine: tuple[pa.Table, ...]
    """One per quarantine file."""

    tombstones: Mapping[str, Sequence[SignedTombstone]]
    """By tenant, all of them."""

    hashes: bytes
    """The file of the logs' hashes."""

    refs: Mapping[str, LogRef]
    """By tenant, this bucket's only."""

    store_id: str
    trust: TrustPolicy

    def rows(self, tenant: str) -> pa.Table:
        """Live rows of a tenant, in leaf order."""
        return _rows_of(tenant, self.tables)

    def quarantined_rows(self, tenant: str) -> pa.Table:
        """Rows of a tenant's memories in quarantine, in leaf order."""
        return _rows_of(tenant, self.quarantine)

    def tree(self, tenant: str) -> TiledTree:
        """Return the tree of a tenant's log; not yet compared with the checkpoint, empty if the log is new."""
        ref = self.refs.get(tenant)
        return TiledTree() if ref is None else read_tree(self.path, ref, self.hashes)

    def checkpoint(self, tenant: str) -> Checkpoint | None:
        """Return the verified checkpoint of a tenant's log; None for a new tenant.

        Raises:
            VerificationError: it does not verify.
        """
        ref = self.refs.get(tenant)
        if ref is None:
            return None
        where = f"checkpoint of tenant {tenant!r:.80}"
        return self.trust.open_checkpoint(ref.note, origin=log_origin(self.store_id, tenant), where=where)


def read_bucket(  # noqa: PLR0913 - where the bucket is, and what is known of it
    path: Path,
    bucket: int,
    files: BucketFiles | None,
    *,
    refs: Mapping[str, LogRef],
    store_id: str,
    trust: TrustPolicy,
    logs_only: bool = False,
) -> BucketView:
    """Read a bucket's files; with `logs_only` neither entries nor tombstones.

    Raises:
        VerificationError: a file is missing, or not the one that the manifest names, or not of its format.
    """
    read = None if logs_only else files
    return BucketView(
        path=path,
        bucket=bucket,
        files=files,
        tables=() if read is None else tuple(read_data_file(path, bucket, ref) for ref in read.data),
        quarantine=()
        if read is None
        else tuple(read_data_file(path, bucket, ref, kind="quarantine") for ref in read.quarantine),
        tombstones=read_stones(path, bucket, None if read is None else read.tombstones),
        hashes=b"" if files is None else read_hashes(path, bucket, files),
        refs={tenant: ref for tenant, ref in refs.items() if ref.bucket == bucket},
        store_id=store_id,
        trust=trust,
    )


def read_hashes(path: Path, bucket: int, files: BucketFiles) -> bytes:
    """Read the file of the logs' hashes. Raises like `read_bucket`."""
    return read_file(path, files.hashes_kind, bucket, files.hashes)


def read_tree(path: Path, ref: LogRef, hashes: bytes) -> TiledTree:
    """Return the tree of a log.

    Args:
        path: The store.
        ref: The log.
        hashes: The file of its bucket's logs' hashes.
    """
    mine = hashes[ref.start : ref.start + ref.stored_bytes]
    if ref.tiled:
        return TiledTree(ref.size, mine, lambda _level, _number, tree_hash: read_tile(path, ref.bucket, tree_hash))
    tree = TiledTree()
    tree.extend(mine)
    return tree


def check_root(tree: TiledTree, checkpoint: Checkpoint, where: str) -> None:
    """Hold the right edge of a log's tree against its verified checkpoint: then each tile is vouched for.

    Raises:
        VerificationError: it is of another root.
    """
    root = tree.root()
    if root != checkpoint.root:
        raise VerificationError(f"{where}: its tiles have root {root.hex()}, expected {checkpoint.root.hex()}")


def tile_paths(path: Path, manifest: Manifest, refs: Mapping[str, LogRef]) -> Iterator[Path]:
    """Yield the path of every full tile of a version.

    Raises:
        VerificationError: a file that says which there are does not verify.
    """
    for bucket, files in manifest.buckets.items():
        hashes = read_hashes(path, bucket, files) if files.tiled else b""
        for ref in refs.values():
            if ref.bucket == bucket and ref.tiled:
                for tree_hash in read_tree(path, ref, hashes).tiles():
                    yield file_path(path, "tiles", bucket, tree_hash.hex())


def read_stones(path: Path, bucket: int, ref: FileRef | None) -> dict[str, list[SignedTombstone]]:
    """Read a bucket's tombstones by tenant; there are none where it has no such file. Raises like `read_bucket`."""
    stones: dict[str, list[SignedTombstone]] = {}
    if ref is not None:
        data = read_file(path, "tombstones", bucket, ref)
        for item in read_tombstones(data, file_name("tombstones", bucket, ref.sha256), ref.rows):
            stones.setdefault(item.tombstone.tenant, []).append(item)
    return stones


def read_data_file(
    path: Path, bucket: int, ref: FileRef, *, kind: Kind = "data", columns: list[str] | None = None
) -> pa.Table:
    """Read one file of entries, live or in quarantine, or some of its columns. Raises like `read_bucket`."""
    data = read_file(path, kind, bucket, ref)
    return read_table(data, file_name(kind, bucket, ref.sha256), columns, rows=ref.rows)


def _rows_of(tenant: str, tables: Iterable[pa.Table]) -> pa.Table:
    mine = [table.filter(pc.equal(table.column("tenant"), tenant)) for table in tables]
    return pa.concat_tables([ENTRY_SCHEMA.empty_table(), *mine])
