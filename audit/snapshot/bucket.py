"""The files of one bucket, read and checked by digest; what they say of a tenant `snapshot.log` verifies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_audit.provenance import merkle
from memory_audit.provenance.checkpoint import Checkpoint, log_origin
from memory_audit.snapshot.columns.tables import ENTRY_SCHEMA, SignedTombstone, read_table, read_tombstones
from memory_audit.snapshot.layout import file_name, read_file
from memory_audit.snapshot.quarantine import in_force

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.checkpoints import LogRef
    from memory_audit.snapshot.layout import FileRef, Kind
    from memory_audit.snapshot.manifest import BucketFiles

__all__ = ["BucketView", "read_bucket", "read_data_file", "read_stones"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketView:
    """One bucket of one version. Bytes match the manifest's digests; signatures inside are not verified yet."""

    bucket: int
    files: BucketFiles | None
    """None where the bucket is still empty."""

    tables: tuple[pa.Table, ...]
    """One per data file."""

    quarantine: tuple[pa.Table, ...]
    """One per quarantine file."""

    tombstones: Mapping[str, Sequence[SignedTombstone]]
    """By tenant, all of them."""

    leaves: bytes
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

    def gone_ids(self, tenant: str) -> dict[str, str]:
        """Return the ids of a tenant's entries that are not live, to "removed" or "in quarantine"."""
        stones = (item.tombstone for item in in_force(self.tombstones.get(tenant, ())))
        return {stone.entry_id: "in quarantine" if stone.quarantines else "removed" for stone in stones}

    def live_ids(self, tenant: str, wanted: Collection[str]) -> list[str]:
        """Return those of the ids in `wanted` that live entries of a tenant have."""
        ids: list[str] = []
        values = pa.array(list(wanted), pa.string())
        for table in self.tables:
            found = table.filter(pc.is_in(table.column("entry_id"), value_set=values))
            ids += found.column("entry_id").filter(pc.equal(found.column("tenant"), tenant)).to_pylist()
        return ids

    def packed_hashes(self, tenant: str) -> bytes:
        """Leaf hashes of a tenant's log, concatenated; not yet compared with the checkpoint, none if it is new."""
        ref = self.refs.get(tenant)
        return b"" if ref is None else self.leaves[ref.start : ref.start + ref.size * merkle.HASH_BYTES]

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
    ids_only: bool = False,
) -> BucketView:
    """Read a bucket's files; with `ids_only` the tables hold tenant and entry id alone, and none are of quarantine.

    Raises:
        VerificationError: a file is missing, or not the one that the manifest names, or not of its format.
    """
    return BucketView(
        bucket=bucket,
        files=files,
        tables=()
        if files is None
        else tuple(read_data_file(path, bucket, ref, ids_only=ids_only) for ref in files.data),
        quarantine=()
        if files is None or ids_only
        else tuple(read_data_file(path, bucket, ref, kind="quarantine") for ref in files.quarantine),
        tombstones=read_stones(path, bucket, None if files is None else files.tombstones),
        leaves=b"" if files is None else read_file(path, "leaves", bucket, files.leaves),
        refs={tenant: ref for tenant, ref in refs.items() if ref.bucket == bucket},
        store_id=store_id,
        trust=trust,
    )


def read_stones(path: Path, bucket: int, ref: FileRef | None) -> dict[str, list[SignedTombstone]]:
    """Read a bucket's tombstones by tenant; there are none where it has no such file. Raises like `read_bucket`."""
    stones: dict[str, list[SignedTombstone]] = {}
    if ref is not None:
        data = read_file(path, "tombstones", bucket, ref)
        for item in read_tombstones(data, file_name("tombstones", bucket, ref.sha256), ref.rows):
            stones.setdefault(item.tombstone.tenant, []).append(item)
    return stones


def read_data_file(path: Path, bucket: int, ref: FileRef, *, kind: Kind = "data", ids_only: bool = False) -> pa.Table:
    """Read one file of entries, live or in quarantine. Raises like `read_bucket`."""
    data = read_file(path, kind, bucket, ref)
    columns = ["tenant", "entry_id"] if ids_only else None
    return read_table(data, file_name(kind, bucket, ref.sha256), columns, rows=ref.rows)


def _rows_of(tenant: str, tables: Iterable[pa.Table]) -> pa.Table:
    mine = [table.filter(pc.equal(table.column("tenant"), tenant)) for table in tables]
    return pa.concat_tables([ENTRY_SCHEMA.empty_table(), *mine])
