"""Judging the logs of a store bucket by bucket, in this process or shared out among several.

Signatures dominate, so what is shared out is rows: whole data files, and towards the end single parts of files, so that
all processes finish together. A process reads the files it judges itself, and sends back only what the accounting over
a bucket needs; entries never travel. The policy is sent to each process once, and verified there.
"""

from __future__ import annotations

import gc
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Self, TypeVar

import pyarrow as pa

from memory_audit.errors import VerificationError
from memory_audit.provenance.tlog.checkpoint import log_origin
from memory_audit.snapshot.bucket import read_hashes, read_stones, read_tree
from memory_audit.snapshot.columns.accounting import ACCOUNT_COLUMNS, check_accounting
from memory_audit.snapshot.columns.rows import check_rows_format
from memory_audit.snapshot.columns.tables import (
    ENTRY_SCHEMA,
    ROWS_PER_GROUP,
    read_table,
)
from memory_audit.snapshot.ids import check_ids
from memory_audit.snapshot.layout import file_name, file_path, read_file
from memory_audit.snapshot.log import check_leaf_hashes, check_rows, check_tombstones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.checkpoints import LogRef
    from memory_audit.snapshot.columns.tables import SignedTombstone
    from memory_audit.snapshot.layout import FileRef, Kind
    from memory_audit.snapshot.manifest import BucketFiles, Manifest

    Stones = Mapping[str, Sequence[SignedTombstone]]

__all__ = ["Judges"]

ENTRY_KINDS: tuple[Kind, Kind] = ("data", "quarantine")

SPLIT_LAST_ROWS = 16_384
"""Of the last rows, this many for each process are shared out in parts of files."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """What a process needs to know of a bucket."""

    path: Path
    store_id: str
    number: int
    files: BucketFiles
    refs: tuple[LogRef, ...]


class _Judge:
    """Judges by one policy; keeps the last file of entries and the last leaf hashes: parts tend to come in a row."""

    def __init__(self, trust: TrustPolicy) -> None:
        self._trust = trust
        self._last_file: tuple[str, bytes] | None = None
        self._last_hashes: tuple[Path, int, FileRef, dict[str, bytes]] | None = None

    def rows(self, bucket: _Bucket, kind: Kind, file: FileRef, part: tuple[int, int]) -> pa.Table:
        """Judge one of n parts of a file of entries against leaf hashes and writers' keys; return ACCOUNT_COLUMNS."""
        where = file_name(kind, bucket.number, file.sha256)
        table = read_table(self._read(bucket, kind, file), where, rows=file.rows, part=part)
        logs = {
            tenant: (log_origin(bucket.store_id, tenant), packed)
            for tenant, packed in self._leaf_hashes(bucket).items()
        }
        check_rows_format(table, where)
        check_rows(table, logs, self._trust, where)
        return table.select(ACCOUNT_COLUMNS)

    def logs(self, bucket: _Bucket) -> Stones:
        """Judge checkpoints, roots and tombstones of a bucket; return the tombstones by tenant."""
        hashes = self._leaf_hashes(bucket)
        stones = read_stones(bucket.path, bucket.number, bucket.files.tombstones)
        for ref in bucket.refs:
            packed = hashes[ref.tenant]
            checkpoint = check_leaf_hashes(ref, packed, store_id=bucket.store_id, trust=self._trust)
            check_tombstones(stones.get(ref.tenant, ()), packed, ref.tenant, checkpoint.origin, self._trust)
        return stones

    def _read(self, bucket: _Bucket, kind: Kind, ref: FileRef) -> bytes:
        where = str(file_path(bucket.path, kind, bucket.number, ref.sha256))
        if self._last_file is None or self._last_file[0] != where:
            self._last_file = where, read_file(bucket.path, kind, bucket.number, ref)
        return self._last_file[1]

    def _leaf_hashes(self, bucket: _Bucket) -> dict[str, bytes]:
        """Return the leaf hashes of each log of a bucket, concatenated."""
        place = bucket.path, bucket.number, bucket.files.hashes
        if self._last_hashes is None or self._last_hashes[:3] != place:
            hashes = read_hashes(bucket.path, bucket.number, bucket.files)
            packed = {ref.tenant: read_tree(bucket.path, ref, hashes).leaf_hashes() for ref in bucket.refs}
            self._last_hashes = *place, packed
        return self._last_hashes[3]


class Judges:
    """One judge in this process, or one in each of several; knows the files of entries that were judged already."""

    def __init__(self, trust: TrustPolicy, processes: int) -> None:
        self._processes = processes
        self._here = _Judge(trust)
        self._known: dict[tuple[Kind, int, str], pa.Table] = {}
        self._pool = None
        if processes > 1:
            self._pool = ProcessPoolExecutor(
                processes, mp_context=get_context("spawn"), initializer=_start_process, initargs=(trust,)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def verify_version(
        self, path: Path, manifest: Manifest, refs: Mapping[str, LogRef], *, keep: bool
    ) -> Iterator[tuple[int, int]]:
        """Verify every log of a version.

        Args:
            path: The store.
            manifest: Verified.
            refs: Tenant to its log.
            keep: Remember which files were judged: another version that shares them follows.

        Yields:
            Rows judged and signatures verified, file by file.

        Raises:
            VerificationError: names the file or the leaf, and what was expected and got.
        """
        by_bucket: dict[int, list[LogRef]] = {number: [] for number in manifest.buckets}
        for ref in refs.values():
            by_bucket[ref.bucket].append(ref)
        buckets = {
            number: _Bucket(
                path=path, store_id=manifest.store_id, number=number, files=files, refs=tuple(by_bucket[number]),
            )
            for number, files in manifest.buckets.items()
        }  # fmt: skip
        logs = {number: self._start(_Judge.logs, bucket) for number, bucket in buckets.items()}
        fresh = [
            (kind, buckets[number], file)
            for number, files in manifest.buckets.items()
            for kind, file in _entry_files(files)
            if (kind, number, file.sha256) not in self._known
        ]
        judged = {
            (kind, bucket.number, file.sha256): [
                self._start(_Judge.rows, bucket, kind, file, (part, parts)) for part in range(parts)
            ]
            for (kind, bucket, file), parts in zip(fresh, self._parts([it.rows for *_, it in fresh]), strict=True)
        }
        for number, files in manifest.buckets.items():
            tables = {kind: [ENTRY_SCHEMA.empty_table().select(ACCOUNT_COLUMNS)] for kind in ENTRY_KINDS}
            for kind, file in _entry_files(files):
                name = kind, number, file.sha256
                new = name in judged
                table = pa.concat_tables([result() for result in judged.pop(name)]) if new else self._known[name]
                if table.num_rows != file.rows:
                    where = file_name(kind, number, file.sha256)
                    raise VerificationError(f"{where}: {table.num_rows} rows, expected {file.rows}")
                if keep:
                    self._known[name] = table
                tables[kind].append(table)
                yield file.rows, file.rows if new else 0
            stones = logs.pop(number)()
            live, quarantined = (pa.concat_tables(tables[kind]) for kind in ENTRY_KINDS)
            check_accounting(buckets[number].refs, live, quarantined, stones)
            check_ids(path, number, files, (live, quarantined), stones)
            yield 0, sum(len(item.signatures) for items in stones.values() for item in items)

    def _start(self, judge: Callable[..., _Result], *task: object) -> Callable[[], _Result]:
        """Start a task; calling the result waits for it."""
        if self._pool is None:
            return lambda: judge(self._here, *task)
        return self._pool.submit(_run, judge, task).result

    def _parts(self, rows: Sequence[int]) -> list[int]:
        """Into how many parts each file is cut: those that are judged last into its row groups."""
        parts: list[int] = []
        last_rows = 0
        for count in reversed(rows):
            cut = self._processes > 1 and last_rows < self._processes * SPLIT_LAST_ROWS
            parts.append(max(1, -(-count // ROWS_PER_GROUP)) if cut else 1)
            last_rows += count
        return parts[::-1]


def _entry_files(files: BucketFiles) -> list[tuple[Kind, FileRef]]:
    return [("data", file) for file in files.data] + [("quarantine", file) for file in files.quarantine]


_judge_of_process: list[_Judge] = []
"""In a worker process: its judge."""


def _start_process(trust: TrustPolicy) -> None:
    gc.disable()  # what a judge makes has no cycles
    _judge_of_process.append(_Judge(trust))


def _run(judge: Callable[..., _Result], task: tuple[object, ...]) -> _Result:
    return judge(_judge_of_process[0], *task)
