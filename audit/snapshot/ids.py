"""Which entry ids the logs of a bucket ever had, so that an append looks up its own ids and reads no entries.

    ids/b=6d/<sha256>.bin    ID_BYTES for each id, rising, as unsigned bytes: the start of the SHA-256 of the length of
                             the tenant's name in two bytes, the name, and the id

A bucket has several such runs; one that is not at least twice as long as the next is merged with it, so that there are
few, and an id is written again seldom. An id stays when its entry is removed: it may not come back, and it may be named
as a parent. Only publishers read this. The manifest vouches for it, and a verification of the store computes it anew.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import VerificationError
from memory_audit.snapshot.bucket import read_data_file, read_stones
from memory_audit.snapshot.columns.rows import tenants_of
from memory_audit.snapshot.layout import FileRef, file_name, read_file
from memory_audit.snapshot.quarantine import in_force

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from memory_audit.snapshot.columns.tables import SignedTombstone
    from memory_audit.snapshot.manifest import BucketFiles

    Ids = NDArray[np.bytes_]
    """Digests of ID_BYTES; sorted but where a function says otherwise."""

    Run = tuple[FileRef | None, Ids]
    """A run of a bucket, and its file where it has one."""

__all__ = ["check_ids", "gone_ids", "id_digests", "kept_ids", "known_ids", "read_runs", "with_ids"]

ID_BYTES = 16
"""Two ids of one digest take 2**64 tries: nobody makes a name pass for a parent that is there."""

_DTYPE = np.dtype(f"S{ID_BYTES}")


def id_digests(tenant: str, ids: Iterable[str]) -> Ids:
    """Return the digests of a tenant's ids, in the order given."""
    name = tenant.encode()
    start = hashlib.sha256(len(name).to_bytes(2, "big") + name)
    digests = bytearray()
    for entry_id in ids:
        one = start.copy()
        one.update(entry_id.encode())
        digests += one.digest()[:ID_BYTES]
    return np.frombuffer(bytes(digests), _DTYPE)


def read_runs(path: Path, bucket: int, files: BucketFiles | None) -> list[Run]:
    """Read the runs of a bucket; of one that has no such files yet, all its ids.

    Raises:
        VerificationError: a file does not verify.
    """
    if files is None:
        return []
    if files.ids is not None:
        return [(ref, _read_run(path, bucket, ref)) for ref in files.ids]
    columns = ["tenant", "entry_id"]
    entries = [read_data_file(path, bucket, ref, columns=columns) for ref in files.data]
    entries += [read_data_file(path, bucket, ref, kind="quarantine", columns=columns) for ref in files.quarantine]
    return [(None, np.unique(_stated(entries, read_stones(path, bucket, files.tombstones))))]


def kept_ids(path: Path, bucket: int, files: BucketFiles | None) -> Sequence[FileRef | Ids]:
    """Return the files of a bucket's runs where it has them, else what is to be one. Raises like `read_runs`."""
    if files is not None and files.ids is not None:
        return files.ids
    return [run for _, run in read_runs(path, bucket, files)]


def with_ids(runs: Sequence[Run], new: Ids) -> list[FileRef | Ids]:
    """Add digests that are in no run yet, in any order: return the files that stay, and what is to be one."""
    kept, added = list(runs), np.sort(new)
    while kept and len(added) and len(kept[-1][1]) < 2 * len(added):
        _, last = kept.pop()
        added = np.insert(last, np.searchsorted(last, added), added)
    return [run if ref is None else ref for ref, run in kept] + ([added] if len(added) else [])


def known_ids(runs: Sequence[Run], tenant: str, ids: Iterable[str]) -> set[str]:
    """Return those of a tenant's ids that are in a run."""
    wanted = list(ids)
    digests = id_digests(tenant, wanted)
    there = np.zeros(len(wanted), np.bool_)
    for _, run in runs:
        places = np.searchsorted(run, digests)
        inside = places < len(run)
        there[inside] |= run[places[inside]] == digests[inside]
    return {entry_id for entry_id, found in zip(wanted, there, strict=True) if found}


def gone_ids(path: Path, bucket: int, files: BucketFiles, tenant: str) -> dict[str, str]:
    """Return a tenant's ids that are not live, to "removed" or "in quarantine". Raises like `read_runs`."""
    stones = (item.tombstone for item in in_force(read_stones(path, bucket, files.tombstones).get(tenant, ())))
    return {stone.entry_id: "in quarantine" if stone.quarantines else "removed" for stone in stones}


def check_ids(
    path: Path,
    bucket: int,
    files: BucketFiles,
    entries: Sequence[pa.Table],
    stones: Mapping[str, Sequence[SignedTombstone]],
) -> None:
    """Compare the runs of a bucket with what its logs hold.

    Args:
        path: The store.
        bucket: Its number.
        files: Its files.
        entries: Tenant and id of all entries, live and in quarantine.
        stones: All tombstones, by tenant.

    Raises:
        VerificationError: an id too many or too few, or a file that does not verify.
    """
    if files.ids is None:
        return
    stated = np.unique(_stated(entries, stones))
    runs = [_read_run(path, bucket, ref) for ref in files.ids]
    if not all(np.all(run[:-1] < run[1:]) for run in runs):
        raise VerificationError(f"ids of bucket {bucket}: out of order, or one twice")
    found = np.sort(np.concatenate([*runs, np.empty(0, _DTYPE)]), kind="stable")  # of runs that rise
    if not np.array_equal(stated, found):
        raise VerificationError(
            f"ids of bucket {bucket}: {len(found)} are listed, which are not the {len(stated)} that its logs ever had"
        )


def _stated(entries: Iterable[pa.Table], stones: Mapping[str, Sequence[SignedTombstone]]) -> Ids:
    """Return the digests of all ids of a bucket, in any order, and some twice."""
    found = [np.empty(0, _DTYPE)]
    for table in entries:
        tenants, places = tenants_of(table.column("tenant"))
        order = np.argsort(places, kind="stable")
        ids = np.array(table.column("entry_id").to_pylist(), np.object_)[order]
        groups = np.split(ids, np.searchsorted(places[order], np.arange(1, len(tenants))))
        found += map(id_digests, tenants, groups)
    found += (id_digests(tenant, (item.tombstone.entry_id for item in items)) for tenant, items in stones.items())
    return np.concatenate(found)


def _read_run(path: Path, bucket: int, ref: FileRef) -> Ids:
    data = read_file(path, "ids", bucket, ref)
    if len(data) != ref.rows * ID_BYTES:
        where = file_name("ids", bucket, ref.sha256)
        raise VerificationError(f"{where}: {len(data)} bytes, expected {ref.rows} ids of {ID_BYTES}")
    return np.frombuffer(data, _DTYPE)
