"""Erasing removed text for good: older versions go, and with them every file that only they name.

A purification leaves the removed entries' text in the files of the versions before it, so that a mistake can be undone
and a dispute settled. After the retention time a vacuum ends that: it publishes a version with the same live view that
states which older versions are no longer kept, and then erases their manifests and files. Leaf hashes and tombstones
stay: the log can still be recomputed and proven, but what was removed can no longer be read. What is in quarantine is
part of the newest version, and stays.

The new manifest comes first, so a kill leaves a store that verifies. The old manifests go last: while a file of theirs
is there, they say so, and the next vacuum erases it and them, whatever its age.

Beside those there may be files that no manifest ever named: left over from interrupted publishers, with text that was
removed since, or about to be published. A publisher holds the store while it writes
(`memory_audit.snapshot.layout.hold`), so whoever holds it alone erases what no manifest names. Where the file system
cannot promise that, since other machines write to it too, left-overs younger than LEFT_OVER_MS stay. What stays is
told; nothing stays in silence.

A store's folder may hold what is not the store's: keys, events, run folders. Left-overs are only what has the place and
the name of a store's own files (`memory_audit.snapshot.publishing.stored`) and lies behind no link; nothing else is
touched. File systems and disks keep copies of their own: this erases names, not magnetism. In an object store likewise:
versions that the bucket keeps are told where its answers show them; replicas and backups are out of reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError, VerificationError
from memory_audit.snapshot.bucket import tile_paths
from memory_audit.snapshot.layout import file_path, hold, manifest_path, versions
from memory_audit.snapshot.manifest import check_dated_near, files_of
from memory_audit.snapshot.publishing.publish import publish_again
from memory_audit.snapshot.publishing.stored import (
    behind_link,
    erase_files,
    is_of_one_machine,
    keeps_versions,
    stored_files,
)
from memory_audit.snapshot.reader import load_logs, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.mirror import Stored
    from memory_audit.snapshot.manifest import Manifest

__all__ = ["DEFAULT_RETENTION_MS", "Vacuumed", "vacuum"]

LEFT_OVER_MS = 24 * 3_600_000
"""No publisher takes longer from its first file to its manifest."""

OLD_VERSIONS = "the bucket keeps old versions of what is erased: end them with a lifecycle rule"

DEFAULT_RETENTION_MS = 7 * 24 * 3_600_000
"""A week to notice that a purification went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What a vacuum erased, or would erase."""

    version: int | None
    """The version it published; None for a dry run, and where no version was given up."""

    versions: tuple[int, ...]
    """Versions that are no longer kept and had files left, also of an earlier vacuum that was interrupted."""

    files: tuple[str, ...]
    """Files erased, relative to the store."""

    bytes: int
    stays: Mapping[str, str]
    """Files that no kept version names and that may hold removed text all the same, relative to the store, to why."""

    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    newest: Manifest
    oldest: int
    """The oldest version to keep; that of the newest manifest where none is given up."""

    gone: tuple[Manifest, ...]
    """Of versions to give up, and of those given up before whose files are not all erased."""

    there: Mapping[Path, Stored]
    """What is there, of the store's or left over."""

    files: list[Path] = field(default_factory=list)
    """To erase before the manifests of `gone`."""

    stays: dict[Path, str] = field(default_factory=dict)


def vacuum(
    path: Path,
    keyring: Keyring,
    *,
    now_ms: int,
    retention_ms: int = DEFAULT_RETENTION_MS,
    dry_run: bool = True,
) -> Vacuumed:
    """Erase versions that were replaced longer ago than the retention time, and what interrupted commands left.

    Args:
        path: The store.
        keyring: Holds the auditor's key.
        now_ms: Clock, Unix milliseconds.
        retention_ms: How long a replaced version is kept; 0 erases all but the newest. Versions that have no file of
            their own stay: nothing would be erased.
        dry_run: Tell what would be erased and erase nothing.

    Returns:
        Also where a file could not be erased: whoever needs it gone looks at `stays`, and starts again.

    Raises:
        UsageError: no store, a negative retention, a link in the place of a file to erase, a clock far ahead.
        VerificationError: the newest manifest, or one whose files would be kept, does not verify.
        StalePlanError: someone else published meanwhile; nothing was erased.
        IncompleteError: other commands write to the store all the time, or an operating system error; start again.
    """
    if retention_ms < 0:
        raise UsageError(f"retention of {retention_ms} ms: it must not be negative")
    keyring.signers("auditor")
    if dry_run:
        plan = _plan(path, keyring, now_ms, retention_ms, alone=is_of_one_machine(path))
        doomed = {item: plan.there[item].size for item in (*plan.files, *_manifests(path, plan))}
        return _vacuumed(path, plan, doomed, version=None, done=False)
    with hold(path, alone=True) as alone:
        plan = _plan(path, keyring, now_ms, retention_ms, alone=alone)
        version = None
        if plan.oldest != plan.newest.oldest:
            check_dated_near(plan.newest, now_ms)
            version = publish_again(
                path, plan.newest, keyring, operation="vacuum", now_ms=now_ms, oldest=plan.oldest
            ).version
        return _vacuumed(path, plan, _erase(path, plan), version=version, done=True)


def _plan(path: Path, keyring: Keyring, now_ms: int, retention_ms: int, *, alone: bool) -> _Plan:
    def read(version: int) -> Manifest:
        return read_manifest(path, keyring.policy, version, now_ms=now_ms, check_expiry=False)

    present = versions(path)
    kept = [newest := read(present[-1])]  # newest first: that one, and those that were replaced after the cutoff
    while kept[-1].version > newest.oldest and kept[-1].created_ms > now_ms - retention_ms:
        kept.append(read(kept[-1].version - 1))
    given_up = [read(version) for version in range(newest.oldest, kept[-1].version)]
    if _content(path, given_up) <= _content(path, kept):  # vacuums and what they followed: the same files
        kept, given_up = kept + given_up, []
    gone = given_up.copy()
    for version in present:
        if version < newest.oldest:
            try:
                old = read(version)
            except VerificationError:  # not as it was written: what it names is told by nobody, and left over
                continue
            if old.store_id == newest.store_id:
                gone.append(old)
    oldest = min(item.version for item in kept)
    plan = _Plan(newest=newest, oldest=oldest, gone=tuple(gone), there=stored_files(path))
    wanted = _content(path, kept) | {manifest_path(path, item.version) for item in kept}
    wanted.update(tile_paths(path, newest, load_logs(path, newest)))  # all tiles of older versions are among them
    named = _content(path, gone) - wanted
    plan.files.extend(file for file in sorted(named) if _is_there(path, plan, file))  # also where a folder is a link
    known = wanted | named | set(_manifests(path, plan))
    for left, found in plan.there.items():
        if left in known:
            continue
        if behind_link(path, left):
            plan.stays[left] = "it lies behind a link, and may be of somebody else"
        elif alone or found.changed_ms <= now_ms - LEFT_OVER_MS:
            plan.files.append(left)
        else:
            plan.stays[left] = "it is younger than a day: a command on another machine may be about to publish it"
    return plan


def _content(path: Path, manifests: Iterable[Manifest]) -> set[Path]:
    return {file_path(path, kind, bucket, ref.sha256) for item in manifests for kind, bucket, ref in files_of(item)}


def _manifests(path: Path, plan: _Plan) -> list[Path]:
    """Return the manifests to erase, last."""
    return [item for item in (manifest_path(path, gone.version) for gone in plan.gone) if _is_there(path, plan, item)]


def _erase(path: Path, plan: _Plan) -> dict[Path, int]:
    """Erase what is planned, and as much as can be; return the sizes of what is gone."""
    items = plan.files
    stays = erase_files(path, items)
    if not stays:  # else they are needed: what they name is not all gone
        manifests = _manifests(path, plan)
        items, stays = items + manifests, erase_files(path, manifests)
    plan.stays.update(stays)
    erased = {item: plan.there[item].size for item in items if item not in stays}
    if keeps_versions(path):
        plan.stays.update(dict.fromkeys(erased, OLD_VERSIONS))
    return erased


def _vacuumed(path: Path, plan: _Plan, erased: Mapping[Path, int], *, version: int | None, done: bool) -> Vacuumed:
    return Vacuumed(
        version=version,
        versions=tuple(sorted(item.version for item in plan.gone)),
        files=tuple(sorted(str(item.relative_to(path)) for item in erased)),
        bytes=sum(erased.values()),
        stays={str(item.relative_to(path)): why for item, why in sorted(plan.stays.items())},
        done=done,
    )


def _is_there(path: Path, plan: _Plan, item: Path) -> bool:
    """Return whether a file is there to erase.

    Raises:
        UsageError: it is a link: what was removed would stay where that leads, and nothing would name it any more.
    """
    if item.is_symlink():
        name = item.relative_to(path)
        raise UsageError(f"{name} is a link, and what it leads to would not be erased: put the file itself there")
    return item in plan.there
