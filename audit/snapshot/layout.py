"""Where things lie in a store, and how a file is named by its content.

    STORE/
      data/b=6d/<sha256>.parquet         live entries with their signatures
      quarantine/b=6d/<sha256>.parquet   likewise, those that no agent reads (`memory_audit.snapshot.quarantine`)
      tiles/b=6d/<tree hash>.bin         full tiles of the logs' Merkle trees (`memory_audit.provenance.tlog.tiles`)
      edges/b=6d/<sha256>.bin            their partial tiles: all logs of the bucket, in order of tenant
      ids/b=6d/<sha256>.bin              which entry ids the logs ever had (`memory_audit.snapshot.ids`)
      leaves/b=6d/<sha256>.bin           in place of these three, in a bucket that no newer program has written to yet:
                                         the leaf hashes of all its logs, in order of tenant
      tombstones/b=6d/<sha256>.parquet   tombstones with their signatures
      checkpoints/b=6d/<sha256>.json     the signed checkpoint of each log of the bucket
      manifests/7.json                   the signed list of all of these: version 7
      scratch/.<24 hex digits>.part      files being written; one left by a killed writer is rubbish. Writers lock this
                                         folder

A tenant's bucket is the first byte of the SHA-256 of its name: reading one tenant reads one bucket. Paths are computed
from digests, never read from a file, so no manifest can name a file outside the store. A tile is named by its hash in
the level above, and not by its place: of two publishers who fill one tile, each writes its own. Whatever else lies in
the folder is its owner's: a store may be made in a folder that has keys, events or run folders too.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import durable
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.tlog.merkle import HASH_BYTES
from memory_audit.provenance.tlog.tiles import TILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = [
    "MAX_LEAVES", "STORE_FOLDERS", "FileRef", "Kind", "behind_link", "bucket_of", "by_bucket", "file_name",
    "file_path", "has_store", "hold", "manifest_path", "put_file", "put_tile", "read_file", "read_tile",
    "stored_files", "sync_bucket", "versions",
]  # fmt: skip

Kind = Literal["data", "quarantine", "tiles", "edges", "ids", "leaves", "tombstones", "checkpoints"]

SUFFIX: dict[Kind, str] = {
    "data": "parquet", "quarantine": "parquet", "tiles": "bin", "edges": "bin", "ids": "bin", "leaves": "bin",
    "tombstones": "parquet", "checkpoints": "json",
}  # fmt: skip

MAX_FILE_BYTES = 1 << 30
"""A reader holds a file in memory: this is 33 million leaf hashes of one bucket, and four times what a data file
decodes to (`memory_audit.snapshot.columns.tables`)."""

MAX_LEAVES = MAX_FILE_BYTES // HASH_BYTES
"""Of one bucket: a reader holds their hashes in memory, and a few tiles can stand for any number of equal ones."""

MAX_VERSION = 9_999_999
"""A version a minute for 19 years: larger ones are fast-forward attacks."""

VACUUM_WAITS_S = 60.0
"""For publishers, most of which are done by then: it may as well come again."""

PUBLISHER_WAITS_S = 600.0
"""For a vacuum, which erases some hundred files a second."""

WRITERS_MODE = 0o770
"""Of the folder that writers hold: who may open it can hold it too, so those who only read a store may not."""

STORE_FOLDERS = (*SUFFIX, "manifests", "scratch")

_MANIFEST = re.compile(r"([1-9][0-9]*)\.json", re.ASCII)
_BUCKET = re.compile(r"b=[0-9a-f]{2}")
_CONTENT = {kind: re.compile(rf"[0-9a-f]{{64}}\.{suffix}") for kind, suffix in SUFFIX.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRef:
    """One file as a manifest names it."""

    sha256: str
    """Hex digest of the content, and the file's name."""

    size: int
    """Bytes."""

    rows: int
    """Entries, hashes, ids, tombstones or checkpoints in it."""


def bucket_of(tenant: str) -> int:
    """Bucket of a tenant, 0 … 255."""
    return hashlib.sha256(tenant.encode()).digest()[0]


def by_bucket(tenants: Iterable[str]) -> list[str]:
    """Return tenants in the order in which each file of a store is read once."""
    return sorted(tenants, key=lambda tenant: (bucket_of(tenant), tenant))


def file_name(kind: Kind, bucket: int, sha256: str) -> str:
    """Name of a content-addressed file within a store."""
    return f"{kind}/b={bucket:02x}/{sha256}.{SUFFIX[kind]}"


def file_path(store: Path, kind: Kind, bucket: int, sha256: str) -> Path:
    """Path of a content-addressed file."""
    return store / file_name(kind, bucket, sha256)


def manifest_path(store: Path, version: int) -> Path:
    """Path of a manifest."""
    return store / "manifests" / f"{version}.json"


def has_store(store: Path) -> bool:
    """Tell whether a version was ever published there: a publisher killed before its first leaves folders alone."""
    folder = store / "manifests"
    return folder.is_dir() and any(_MANIFEST.fullmatch(path.name) for path in folder.iterdir())


def versions(store: Path) -> list[int]:
    """Return the versions whose manifests are there, oldest first; other files are left-overs and ignored.

    Raises:
        UsageError: there is no store.
        VerificationError: a version beyond MAX_VERSION (fast-forward).
    """
    folder = store / "manifests"
    matches = [_MANIFEST.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    names = [match[1] for match in matches if match]
    if not names:
        raise UsageError(_no_store(store))
    too_long = [name for name in names if len(name) > len(str(MAX_VERSION))]
    if too_long:
        raise VerificationError(f"manifests/{too_long[0]:.20}.json: version above {MAX_VERSION} (fast-forward)")
    return sorted(int(name) for name in names)


@contextmanager
def hold(store: Path, *, alone: bool = False) -> Iterator[bool]:
    """Hold a store while it is written to.

    Publishers hold it together, from the first file that no manifest names yet to the manifest. A vacuum holds it
    alone: what no manifest names then, no one is about to publish.

    Args:
        store: It has been published to, or is about to be.
        alone: As a vacuum does.

    Yields:
        For who wants it alone: whether no publisher can be at work now, also on another machine.

    Raises:
        UsageError: there is no store.
        IncompleteError: an operating system error, or others hold it all the time.
    """
    if not (store / "manifests").is_dir():
        raise UsageError(_no_store(store))
    durable.ensure_folder(folder := store / "scratch", mode=WRITERS_MODE)
    with locked(folder, shared=not alone, wait_s=VACUUM_WAITS_S if alone else PUBLISHER_WAITS_S) as only:
        yield only


def stored_files(store: Path) -> Iterator[Path]:
    """Every file that a store's writers can have put there, whether or not a manifest names it.

    Goes by place and name alone; some may lie `behind_link`.
    """
    yield from _named_files(store / "manifests", _MANIFEST)
    yield from _named_files(store / "scratch", durable.PARTIAL)
    for kind, content in _CONTENT.items():
        for folder in _named(store / kind, _BUCKET):
            yield from _named_files(folder, content)
            yield from _named_files(folder, durable.PARTIAL)  # the repair of a damaged file writes beside it


def behind_link(store: Path, path: Path) -> bool:
    """Tell whether a file of `stored_files` is a link, or lies in a folder that is one: it may not be the store's."""
    parts = path.relative_to(store).parts
    return any(store.joinpath(*parts[:depth]).is_symlink() for depth in range(1, len(parts) + 1))


def _named_files(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    return (path for path in _named(folder, name) if path.is_file())


def _named(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    """Return what has such a name in a folder."""
    return (path for path in sorted(folder.iterdir()) if name.fullmatch(path.name)) if folder.is_dir() else iter(())


def _no_store(store: Path) -> str:
    return f"no store at {store}: make one with `memaudit import`"


def read_file(store: Path, kind: Kind, bucket: int, ref: FileRef) -> bytes:
    """Read a file and check it against its name: what is returned are the bytes the manifest means.

    Raises:
        VerificationError: missing, or of another size or digest.
    """
    where = file_name(kind, bucket, ref.sha256)
    data = durable.read_bounded(store / where, ref.size, where)
    if len(data) != ref.size:
        raise VerificationError(f"{where}: {len(data)} bytes, expected {ref.size}")
    digest = hashlib.sha256(data).hexdigest()
    if digest != ref.sha256:
        raise VerificationError(f"{where}: SHA-256 is {digest}, expected {ref.sha256}")
    return data


def put_file(store: Path, kind: Kind, bucket: int, data: bytes, rows: int) -> FileRef:
    """Write a file under its content's name, durable after `sync_bucket`; one that is there is checked and kept.

    Raises:
        IncompleteError: the disk is full, or another operating system error.
    """
    ref = FileRef(sha256=hashlib.sha256(data).hexdigest(), size=len(data), rows=rows)
    _put(store, file_path(store, kind, bucket, ref.sha256), data)
    return ref


def read_tile(store: Path, bucket: int, tree_hash: bytes) -> bytes:
    """Read a full tile; that it is the right one is for `memory_audit.provenance.tlog.tiles` to say.

    Raises:
        VerificationError: missing, or larger than a tile.
    """
    where = file_name("tiles", bucket, tree_hash.hex())
    return durable.read_bounded(store / where, TILE_BYTES, where)


def put_tile(store: Path, bucket: int, tree_hash: bytes, tile: bytes) -> None:
    """Write a full tile, like `put_file`."""
    _put(store, file_path(store, "tiles", bucket, tree_hash.hex()), tile)


def sync_bucket(store: Path, bucket: int) -> None:
    """Make the names of a bucket's files durable, at once: most file systems then have one journal to write.

    Raises:
        IncompleteError: an operating system error.
    """
    for kind in SUFFIX:
        folder = store / kind / f"b={bucket:02x}"
        if folder.is_dir():
            durable.sync_folder(folder)


def _put(store: Path, path: Path, data: bytes) -> None:
    durable.ensure_folder(path.parent)
    durable.ensure_folder(store / "scratch", mode=WRITERS_MODE)
    if not durable.create(path, data, scratch=store / "scratch", synced=False):
        try:
            whole = durable.read_bounded(path, len(data), path.name) == data
        except VerificationError:
            whole = False
        if not whole:  # a damaged copy under the right name: put the content back
            durable.replace(path, data)
