"""Erasing removed text for good: older versions go, and with them every file that only they name.

A purification leaves the removed entries' text in the files of the versions before it, so that a mistake can be undone
and a dispute settled. After the retention time a vacuum ends that: it publishes a version with the same live view that
states which older versions are no longer kept, and then erases their manifests and files. Leaf hashes and tombstones
stay: the log can still be recomputed and proven, but what was removed can no longer be read.

The new manifest comes first, so a kill leaves a store that verifies, with files that no manifest names; the next
vacuum erases those. File systems and disks keep copies of their own: this erases names, not magnetism.

A store's folder may hold what is not the store's: keys, events, run folders. Left-overs are only what has the place and
the name of a store's own files (`audit.snapshot.layout.stored_files`); nothing else is touched, however old it is.
Those younger than LEFT_OVER_MS are never erased: they may be of a command that is about to publish.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from audit.errors import UsageError
from audit.provenance import durable
from audit.snapshot.layout import file_path, manifest_path, stored_files, versions
from audit.snapshot.manifest import files_of
from audit.snapshot.publish import publish_manifest
from audit.snapshot.reader import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from audit.provenance.keys import Keyring
    from audit.snapshot.manifest import Manifest

__all__ = ["DEFAULT_RETENTION_MS", "Vacuumed", "vacuum"]

LEFT_OVER_MS = 24 * 3_600_000

DEFAULT_RETENTION_MS = 7 * 24 * 3_600_000
"""A week to notice that a purification went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What a vacuum erased, or would erase."""

    version: int | None
    """The version it published; None for a dry run, and where only left-overs were erased."""

    versions: tuple[int, ...]
    """Versions that are no longer kept."""

    files: tuple[str, ...]
    """Files erased, relative to the store."""

    bytes: int
    done: bool


def vacuum(
    path: Path,
    keyring: Keyring,
    *,
    now_ms: int,
    retention_ms: int = DEFAULT_RETENTION_MS,
    dry_run: bool = True,
) -> Vacuumed:
    """Erase versions that were replaced longer ago than the retention time.

    Args:
        path: The store.
        keyring: Holds the auditor's key.
        now_ms: Clock, Unix milliseconds.
        retention_ms: How long a replaced version is kept; 0 erases all but the newest.
        dry_run: Tell what would be erased and erase nothing.

    Raises:
        UsageError: no store, a negative retention, or a file to erase is a link.
        VerificationError: the newest manifest, or one whose files would be kept, does not verify.
        StalePlanError: someone else published meanwhile; nothing was erased.
        IncompleteError: an operating system error; start again.
    """
    if retention_ms < 0:
        raise UsageError(f"retention of {retention_ms} ms: it must not be negative")
    keyring.signers("auditor")
    present = versions(path)
    newest = read_manifest(path, keyring.policy, present[-1], now_ms=now_ms, check_expiry=False)
    kept = _kept(path, newest, keyring, now_ms, now_ms - retention_ms)
    erased = tuple(range(newest.oldest, kept[0].version))
    wanted = {manifest_path(path, item.version) for item in kept}
    wanted |= {file_path(path, kind, bucket, ref.sha256) for item in kept for kind, bucket, ref in files_of(item)}
    gone = [read_manifest(path, keyring.policy, item, now_ms=now_ms, check_expiry=False) for item in erased]
    doomed = _doomed(path, wanted, gone, now_ms - max(retention_ms, LEFT_OVER_MS))
    size = sum(item.stat().st_size for item in doomed)
    names = tuple(str(item.relative_to(path)) for item in doomed)
    if dry_run or not doomed:
        return Vacuumed(version=None, versions=erased, files=names, bytes=size, done=not dry_run)
    version = None
    if erased:
        successor = replace(
            newest, version=newest.version + 1, oldest=kept[0].version, operation="vacuum", parent=newest.digest,
            created_ms=now_ms, run_id="", models={}, config={}, policy_version=keyring.policy.version,
            policy_sha256=keyring.policy.digest,
        )  # fmt: skip
        version = publish_manifest(path, successor, keyring).version
    for item in doomed:
        durable.remove(item)
    return Vacuumed(version=version, versions=erased, files=names, bytes=size, done=True)


def _kept(path: Path, newest: Manifest, keyring: Keyring, now_ms: int, cutoff_ms: int) -> list[Manifest]:
    """Return the versions to keep, oldest first: the newest, and those replaced after the cutoff."""
    kept = [newest]
    while kept[-1].version > newest.oldest and kept[-1].created_ms > cutoff_ms:
        before = kept[-1].version - 1
        kept.append(read_manifest(path, keyring.policy, before, now_ms=now_ms, check_expiry=False))
    return kept[::-1]


def _doomed(path: Path, wanted: set[Path], gone: Iterable[Manifest], cutoff_ms: int) -> list[Path]:
    """Return the files to erase: those of erased versions, and left-overs older than the cutoff."""
    named = {manifest_path(path, item.version) for item in gone}
    named |= {file_path(path, kind, bucket, ref.sha256) for item in gone for kind, bucket, ref in files_of(item)}
    certain = {item for item in sorted(named - wanted) if _is_there(path, item)}  # also where a folder is a link
    left_over = {item for item in stored_files(path) if item.stat().st_mtime_ns // 1_000_000 <= cutoff_ms}
    return sorted(certain | (left_over - wanted))


def _is_there(path: Path, item: Path) -> bool:
    """Return whether a file is there to erase.

    Raises:
        UsageError: it is a link: what was removed would stay where that leads, and nothing would name it any more.
    """
    if item.is_symlink():
        name = item.relative_to(path)
        raise UsageError(f"{name} is a link, and what it leads to would not be erased: put the file itself there")
    return item.is_file()
