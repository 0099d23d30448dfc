"""The files of one bucket, read and checked by digest; what they say of a tenant `audit.snapshot.log` verifies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from audit.provenance import merkle
from audit.snapshot.columns import ENTRY_SCHEMA, SignedTombstone, read_entry_table, read_tombstones
from audit.snapshot.layout import file_path, read_file
from audit.snapshot.log import check_leaf_hashes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from audit.provenance.policy import TrustPolicy
    from audit.snapshot.checkpoints import LogRef
    from audit.snapshot.layout import FileRef
    from audit.snapshot.manifest import BucketFiles

__all__ = ["BucketView", "read_bucket", "read_data_file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketView:
    """One bucket of one version. Bytes match the manifest's digests; signatures inside are not verified yet."""

    bucket: int
    files: BucketFiles | None
    """None where the bucket is still empty."""

    tables: tuple[pa.Table, ...]
    """One per data file."""

    tombstones: Mapping[str, Sequence[SignedTombstone]]
    """By tenant."""

    leaves: bytes
    refs: Mapping[str, LogRef]
    """By tenant, this bucket's only."""

    store_id: str
    trust: TrustPolicy

    def rows(self, tenant: str) -> pa.Table:
        """Live rows of a tenant, in leaf order."""
        mine = [table.filter(pc.equal(table.column("tenant"), tenant)) for table in self.tables]
        return pa.concat_tables([ENTRY_SCHEMA.empty_table(), *mine])

    def live_ids(self, tenant: str) -> list[str]:
        """Ids of a tenant's live entries."""
        ids: list[str] = self.rows(tenant).column("entry_id").to_pylist()
        return ids

    def packed_hashes(self, tenant: str) -> bytes:
        """Leaf hashes of a tenant's log, concatenated and not yet compared with the checkpoint."""
        ref = self.refs[tenant]
        return self.leaves[ref.start : ref.start + ref.size * merkle.HASH_BYTES]

    def leaf_hashes(self, tenant: str) -> list[bytes]:
        """Leaf hashes of a tenant's log under its verified checkpoint; none for a new tenant.

        Raises:
            VerificationError: the checkpoint does not verify, or its root is not that of the hashes.
        """
        ref = self.refs.get(tenant)
        if ref is None:
            return []
        return check_leaf_hashes(ref, self.packed_hashes(tenant), store_id=self.store_id, trust=self.trust)[1]

    def others(self, changed: Collection[str]) -> dict[str, tuple[bytes, bytes]]:
        """Signed note and packed leaf hashes of the tenants not in `changed`."""
        return {
            tenant: (ref.note, self.packed_hashes(tenant)) for tenant, ref in self.refs.items() if tenant not in changed
        }


def read_bucket(  # noqa: PLR0913 - where the bucket is, and what is known of it
    path: Path,
    bucket: int,
    files: BucketFiles | None,
    *,
    refs: Mapping[str, LogRef],
    store_id: str,
    trust: TrustPolicy,
) -> BucketView:
    """Read a bucket's files.

    Raises:
        VerificationError: a file is missing, or not the one that the manifest names, or not of its format.
    """
    tombstones: dict[str, list[SignedTombstone]] = {}
    if files is not None and files.tombstones is not None:
        data = read_file(path, "tombstones", bucket, files.tombstones)
        for item in read_tombstones(data, str(file_path(path, "tombstones", bucket, files.tombstones.sha256).name)):
            tombstones.setdefault(item.tombstone.tenant, []).append(item)
    return BucketView(
        bucket=bucket,
        files=files,
        tables=() if files is None else tuple(read_data_file(path, bucket, ref) for ref in files.data),
        tombstones=tombstones,
        leaves=b"" if files is None else read_file(path, "leaves", bucket, files.leaves),
        refs={tenant: ref for tenant, ref in refs.items() if ref.bucket == bucket},
        store_id=store_id,
        trust=trust,
    )


def read_data_file(path: Path, bucket: int, ref: FileRef) -> pa.Table:
    """Read one data file. Raises like `read_bucket`."""
    data = read_file(path, "data", bucket, ref)
    return read_entry_table(data, f"data/b={bucket:02x}/{ref.sha256}.parquet")
