"""Verifying a whole store: every file of every version, every signature, every root, every step between versions.

1. Every manifest from the oldest kept version to the newest, each naming its parent's digest; only
   a vacuum, which takes an auditor, drops older ones.
2. The pin, if there is one.
3. Every file that any of them names, by size and digest.
4. For each log that changed between two versions: a consistency proof from the older checkpoint to the newer, computed
   from the newer one's tiles and verified, so that no version rewrote history.
5. Every log of the newest version by the rules of `memory_audit.snapshot.log`, and every tile of its tree; with `deep`,
   of every version. Likewise the ids that appends look up (`memory_audit.snapshot.ids`).

What does not verify since a vacuum erased it meanwhile is no attack: then all starts over with what is kept now.
"""

from __future__ import annotations

import heapq
import os
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from memory_audit.errors import StalePlanError, VerificationError
from memory_audit.provenance.tlog import merkle
from memory_audit.provenance.tlog.checkpoint import log_origin
from memory_audit.provenance.tlog.tiles import TILE_BYTES
from memory_audit.snapshot.bucket import read_hashes, read_tree, tile_paths
from memory_audit.snapshot.judge import Judges
from memory_audit.snapshot.layout import fetch, fetch_tiles, file_path, manifest_path, read_file, versions
from memory_audit.snapshot.manifest import check_not_ahead, files_of
from memory_audit.snapshot.newest import TRIES, oldest_kept, read_manifest, read_newest
from memory_audit.snapshot.publishing.stored import all_files
from memory_audit.snapshot.reader import check_pin, load_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.checkpoints import LogRef
    from memory_audit.snapshot.layout import FileRef, Kind
    from memory_audit.snapshot.manifest import Manifest
    from memory_audit.snapshot.pin import Pin

    Progress = Callable[[str, int, int], None]

__all__ = ["LogStep", "VerificationReport", "verify_store"]

ROWS_FOR_WORKERS = 20_000
"""Below this many live entries one process is done before a second has started."""

LEFTOVERS_SHOWN = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStep:
    """One log between two versions: the older checkpoint is a prefix of the newer."""

    tenant: str
    from_version: int
    to_version: int
    from_size: int
    to_size: int
    proof_hashes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationReport:
    """What was verified. There is no report of a failure: that is a VerificationError."""

    store_id: str
    version: int
    digest: str
    versions: tuple[int, ...]
    deep: bool
    files: int
    bytes: int
    tenants: int
    entries: int
    """Live entries of the newest version."""

    quarantined: int
    """Entries in quarantine in the newest version, each of them there as its writer signed it."""

    tombstones: int
    """Of the newest version, also those that are no longer in force."""

    leaves: int
    signatures: int
    """Entry and tombstone signatures verified."""

    steps: tuple[LogStep, ...]
    leftovers: tuple[str, ...]
    """Files that no kept version names, which nothing reads: remains of an interrupted publisher, or planted (the first
    1 000). A folder too deep to look into stands for its files."""

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON-able values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    manifest: Manifest
    refs: Mapping[str, LogRef]

    def refs_of(self, bucket: int) -> tuple[LogRef, ...]:
        return tuple(ref for ref in self.refs.values() if ref.bucket == bucket)


def verify_store(  # noqa: PLR0913 - a path, and named conditions
    path: Path,
    trust: TrustPolicy,
    *,
    now_ms: int,
    pin: Pin | None = None,
    deep: bool = False,
    progress: Progress | None = None,
    workers: int | None = None,
) -> VerificationReport:
    """Verify a store.

    Args:
        path: The store.
        trust: The installed policy.
        now_ms: The reader's clock, Unix milliseconds.
        pin: What this reader saw last.
        deep: Verify entries, tombstones and roots of every version, not of the newest only.
        progress: Called with a stage ("files", "entries"), how many are done and how many there are.
        workers: Processes for data files; None is one per usable core, 1 is this process alone.

    Raises:
        UsageError: no store.
        VerificationError: names the file or the leaf, and what was expected and got.
        StalePlanError: versions were erased again and again while they were verified.
    """
    newest = read_newest(path, trust, now_ms=now_ms, check_expiry=True)
    check_not_ahead(newest, now_ms)
    for _ in range(TRIES):
        try:
            return _verify_from(path, trust, newest, pin, progress or _silent, workers, deep=deep)
        except VerificationError:
            if oldest_kept(path, trust, newest.store_id) <= newest.oldest:
                raise
        newest = read_newest(path, trust, now_ms=now_ms, check_expiry=True)  # made since the clock was read
    raise StalePlanError(f"{path}: vacuums erased versions while they were verified, {TRIES} times; start again later")


def _verify_from(  # noqa: PLR0913, PLR0917 - as `verify_store`
    path: Path,
    trust: TrustPolicy,
    newest: Manifest,
    pin: Pin | None,
    report: Progress,
    workers: int | None,
    *,
    deep: bool,
) -> VerificationReport:
    """Verify a store whose newest manifest is verified."""
    history = _load_history(path, trust, newest)
    if pin is not None:
        check_pin(path, trust, newest, history[-1].refs, pin)
    looked_at = history if deep else history[-1:]
    fetch(path, (named for item in history for named in files_of(item.manifest)))
    named = _check_other_files(path, history, looked_at, report)
    steps = [step for older, newer in pairwise(history) for step in _check_steps(path, trust, older, newer)]
    tiles = set(tile_paths(path, newest, history[-1].refs))  # older versions have none that it has not
    fetch_tiles(path, tiles)
    signatures = done = 0
    total = sum(item.manifest.entries + item.manifest.quarantined for item in looked_at)
    cores = len(os.sched_getaffinity(0)) if workers is None else workers
    with Judges(trust, cores if newest.entries >= ROWS_FOR_WORKERS else 1) as judges:
        for item in reversed(looked_at):
            for rows, fresh in judges.verify_version(path, item.manifest, item.refs, keep=deep):
                done += rows
                signatures += fresh
                report("entries", done, total)
    return VerificationReport(
        store_id=newest.store_id,
        version=newest.version,
        digest=newest.digest,
        versions=tuple(item.manifest.version for item in history),
        deep=deep,
        files=len(named) + len(tiles) + len(history),
        bytes=sum(ref.size for ref in named.values()) + len(tiles) * TILE_BYTES,
        tenants=newest.tenants,
        entries=newest.entries,
        quarantined=newest.quarantined,
        tombstones=sum(files.tombstones.rows for files in newest.buckets.values() if files.tombstones),
        leaves=newest.leaves,
        signatures=signatures,
        steps=tuple(steps),
        leftovers=_leftovers(path, trust, named.keys() | tiles, history),
    )


def _silent(_stage: str, _done: int, _total: int) -> None:
    return


def _load_history(path: Path, trust: TrustPolicy, newest: Manifest) -> list[_Version]:
    """Step 1: from the newest manifest down to the oldest it says is kept."""
    present = set(versions(path))
    manifests = [newest]
    while manifests[-1].version > newest.oldest:
        child = manifests[-1]
        where = f"manifests/{child.version}.json"
        if child.version - 1 not in present:
            raise VerificationError(
                f"manifests/{child.version - 1}.json: missing, versions {newest.oldest} on are kept"
            )
        parent = read_manifest(path, trust, child.version - 1, now_ms=newest.created_ms, check_expiry=False)
        if parent.digest != child.parent or parent.store_id != child.store_id:
            raise VerificationError(f"{where}: parent digest is {child.parent}, expected {parent.digest}")
        if child.operation != "vacuum" and child.oldest != parent.oldest:  # to drop versions takes an auditor
            raise VerificationError(
                f"{where}: version {child.oldest} is the oldest kept, expected {parent.oldest}: "
                f"only a vacuum drops versions, this is an {child.operation}"
            )
        manifests.append(parent)
    if newest.version > 1 and newest.oldest == newest.version:
        raise VerificationError(f"manifests/{newest.version}.json: states that its parent is not kept; it must be")
    if manifests[-1].version == 1 and manifests[-1].parent is not None:
        raise VerificationError("manifests/1.json: the first version names a parent")
    return [_Version(manifest=item, refs=load_logs(path, item)) for item in reversed(manifests)]


def _check_other_files(
    path: Path, history: Sequence[_Version], looked_at: Sequence[_Version], report: Progress
) -> dict[Path, FileRef]:
    """Step 3: digests of the files that the later steps do not read; return all files that a version names."""
    read_later = {file_path(path, kind, bucket, ref.sha256) for item in looked_at
                  for kind, bucket, ref in files_of(item.manifest)}  # fmt: skip
    named: dict[Path, FileRef] = {}
    others: dict[Path, tuple[Kind, int, FileRef]] = {}
    for item in history:
        for kind, bucket, ref in files_of(item.manifest):
            final = file_path(path, kind, bucket, ref.sha256)
            named[final] = ref
            if final not in read_later:
                others[final] = kind, bucket, ref
    for number, (kind, bucket, ref) in enumerate(others.values(), start=1):
        read_file(path, kind, bucket, ref)
        report("files", number, len(others))
    return named


def _check_steps(path: Path, trust: TrustPolicy, older: _Version, newer: _Version) -> Iterator[LogStep]:
    """Step 4, for two neighbouring versions."""
    for bucket, files in older.manifest.buckets.items():
        new_files = newer.manifest.buckets.get(bucket)
        if new_files is not None and new_files.checkpoints == files.checkpoints and new_files.hashes == files.hashes:
            continue
        hashes = b"" if new_files is None else read_hashes(path, bucket, new_files)
        for ref in older.refs_of(bucket):
            step = _check_step(path, trust, ref, older.manifest, newer, hashes)
            if step is not None:
                yield step


def _check_step(  # noqa: PLR0913, PLR0917
    path: Path, trust: TrustPolicy, ref: LogRef, older: Manifest, newer: _Version, hashes: bytes
) -> LogStep | None:
    where = f"version {newer.manifest.version}: log of tenant {ref.tenant!r:.80}"
    new_ref = newer.refs.get(ref.tenant)
    if new_ref is None:
        raise VerificationError(f"{where} is missing, version {older.version} has it")
    origin = log_origin(older.store_id, ref.tenant)
    first = trust.open_checkpoint(ref.note, origin=origin, where=f"{where}, version {older.version}")
    second = trust.open_checkpoint(new_ref.note, origin=origin, where=where)
    if first == second:
        return None
    if not 0 < first.size <= second.size:
        raise VerificationError(f"{where} has {second.size} leaves, version {older.version} has {first.size}")
    proof = read_tree(path, new_ref, hashes).consistency_proof(first.size)
    try:
        merkle.verify_consistency(first.size, second.size, proof, first.root, second.root)
    except VerificationError as error:
        raise VerificationError(f"{where} is not an extension of version {older.version}: {error}") from None
    return LogStep(
        tenant=ref.tenant, from_version=older.version, to_version=newer.manifest.version, from_size=first.size,
        to_size=second.size, proof_hashes=len(proof),
    )  # fmt: skip


def _leftovers(
    path: Path, trust: TrustPolicy, named: AbstractSet[Path], history: Sequence[_Version]
) -> tuple[str, ...]:
    """Name what is in a store's own folders and no part of it; what else lies beside them is not the store's."""
    there = all_files(path)
    known = {manifest_path(path, item.manifest.version) for item in history} | named
    for version in versions(path):  # looked for last: what others published meanwhile is left over from nobody
        if version > history[-1].manifest.version:
            later = read_manifest(path, trust, version, now_ms=0, check_expiry=False)
            known |= {file_path(path, kind, bucket, ref.sha256) for kind, bucket, ref in files_of(later)}
            known.update(tile_paths(path, later, load_logs(path, later)))
            known.add(manifest_path(path, version))
    return tuple(heapq.nsmallest(LEFTOVERS_SHOWN, (str(item.relative_to(path)) for item in there if item not in known)))
