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

A store may lie in an object store, under the same names; its folder is then a mirror
(`memory_audit.provenance.mirror`). This module is the only one of the store's that knows of it.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import durable
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.mirror import mirror_of
from memory_audit.provenance.tlog.merkle import HASH_BYTES, packed_root
from memory_audit.provenance.tlog.tiles import TILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = [
    "MAX_LEAVES", "STORED", "STORE_FOLDERS", "FileRef", "Kind", "bucket_of", "by_bucket", "create_manifest", "fetch",
    "fetch_tiles", "file_name", "file_path", "has_store", "hold", "manifest_path", "put_file", "put_tile", "read_file",
    "read_manifest_file", "read_tile", "sync_bucket", "versions",
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
# The repair of a damaged file writes beside it.
_CONTENT = (
    rf"{kind}/b=[0-9a-f]{{2}}/(?:[0-9a-f]{{64}}\.{end}|{durable.PARTIAL.pattern})" for kind, end in SUFFIX.items()
)
STORED = re.compile(
    "|".join([rf"manifests/{_MANIFEST.pattern}", rf"scratch/{durable.PARTIAL.pattern}", *_CONTENT]), re.ASCII
)
"""Names of what a store's writers put there, relative to it."""


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
    return bool(_manifests(store))


def versions(store: Path) -> list[int]:
    """Return the versions whose manifests are there, oldest first; other files are left-overs and ignored.

    Raises:
        UsageError: there is no store.
        VerificationError: a version beyond MAX_VERSION (fast-forward).
    """
    names = _manifests(store)
    if not names:
        raise UsageError(_no_store(store))
    too_long = [name for name in names if len(name) > len(str(MAX_VERSION))]
    if too_long:
        raise VerificationError(f"manifests/{too_long[0]:.20}.json: version above {MAX_VERSION} (fast-forward)")
    found = sorted(int(name) for name in names)
    if (mirror := mirror_of(store)) is not None:
        mirror.prune(found[-1], STORED)
    return found


def _manifests(store: Path) -> list[str]:
    """Return the version in each manifest's name."""
    mirror, folder = mirror_of(store), store / "manifests"
    if mirror is not None:
        files = [name.removeprefix("manifests/") for name in mirror.remote.listing("manifests/")]
    else:
        files = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return [match[1] for name in files if (match := _MANIFEST.fullmatch(name))]


def read_manifest_file(store: Path, version: int, max_bytes: int) -> bytes:
    """Read a manifest of at most `max_bytes`.

    Raises:
        VerificationError: it is missing, or larger.
    """
    where = f"manifests/{version}.json"
    mirror = mirror_of(store)
    if mirror is None:
        return durable.read_bounded(store / where, max_bytes, where)
    data = mirror.remote.get(where, max_bytes)
    if data is None:
        raise VerificationError(f"{where}: missing")
    return data


def create_manifest(store: Path, version: int, data: bytes) -> bool:
    """Make a version one of the store's: what its files name is durable, and this step is all that readers see.

    Returns:
        False where that version exists.

    Raises:
        IncompleteError: the disk is full, or another operating system error, or another machine took the store over.
    """
    mirror = mirror_of(store)
    if mirror is None:
        durable.ensure_folder(store / "manifests")
        return durable.create(manifest_path(store, version), data, scratch=store / "scratch")
    mirror.send()
    mirror.remote.check_held()
    return mirror.remote.create(f"manifests/{version}.json", data)


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
    mirror = mirror_of(store)
    if mirror is None and not (store / "manifests").is_dir():
        raise UsageError(_no_store(store))
    wait_s = VACUUM_WAITS_S if alone else PUBLISHER_WAITS_S
    durable.ensure_folder(folder := store / "scratch", mode=WRITERS_MODE)
    with locked(folder, shared=not alone, wait_s=wait_s) as only:
        if mirror is None:
            yield only
        else:
            mirror.unsent.clear()
            with mirror.remote.hold(wait_s=wait_s):
                yield False


def _no_store(store: Path) -> str:
    return f"no store at {store}: make one with `memaudit import`"


def read_file(store: Path, kind: Kind, bucket: int, ref: FileRef) -> bytes:
    """Read a file and check it against its name: what is returned are the bytes the manifest means.

    Raises:
        VerificationError: missing, or of another size or digest.
    """
    where, mirror = file_name(kind, bucket, ref.sha256), mirror_of(store)
    try:
        return _read_content(store, where, ref)
    except VerificationError:
        if mirror is None:
            raise
    mirror.fetch({where: ref.size}, anew=True)
    return _read_content(store, where, ref)


def _read_content(store: Path, where: str, ref: FileRef) -> bytes:
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
    where, mirror = file_name("tiles", bucket, tree_hash.hex()), mirror_of(store)
    if mirror is not None:
        with suppress(VerificationError):
            tile = durable.read_bounded(store / where, TILE_BYTES, where)
            if len(tile) == TILE_BYTES and packed_root(tile) == tree_hash:
                return tile
        mirror.fetch({where: TILE_BYTES}, anew=True)
    return durable.read_bounded(store / where, TILE_BYTES, where)


def fetch(store: Path, named: Iterable[tuple[Kind, int, FileRef]]) -> None:
    """Have files at hand that will be read soon: those of an object store come many at a time.

    Raises:
        UsageError, IncompleteError: they cannot be asked for.
    """
    if (mirror := mirror_of(store)) is not None:
        mirror.fetch({file_name(kind, bucket, ref.sha256): ref.size for kind, bucket, ref in named})


def fetch_tiles(store: Path, tiles: Iterable[Path]) -> None:
    """Have tiles at hand, like `fetch`."""
    if (mirror := mirror_of(store)) is not None:
        mirror.fetch({str(tile.relative_to(store)): TILE_BYTES for tile in tiles})


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
    if (mirror := mirror_of(store)) is not None:
        mirror.write(path)
