"""A version that tombstones make: they are appended to the logs, and entries move to where those in force say.

An entry that is removed is left out of all files, one that is put in quarantine goes from a data file to a quarantine
file, and one that is released goes back. Rows are moved as they are, with their writers' signatures. Where within a
tenant leaf indices rise from file to file, they do so afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_audit.snapshot.columns.tables import ENTRY_SCHEMA
from memory_audit.snapshot.ids import kept_ids
from memory_audit.snapshot.layout import bucket_of, hold
from memory_audit.snapshot.manifest import check_dated_near
from memory_audit.snapshot.publishing.draft import Draft
from memory_audit.snapshot.publishing.log_writer import LogWriter
from memory_audit.snapshot.publishing.publish import publish_manifest, sign_readable
from memory_audit.snapshot.quarantine import in_force

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.provenance.leaf import Tombstone
    from memory_audit.snapshot.bucket import BucketView
    from memory_audit.snapshot.layout import FileRef
    from memory_audit.snapshot.manifest import Operation
    from memory_audit.snapshot.publishing.publish import Published
    from memory_audit.snapshot.reader import VerifiedSnapshot

    Place = tuple[str, int]
    """Tenant and leaf index."""

    Files = list[tuple[FileRef | pa.Table, pa.Table]]
    """What is written, and its rows: a file that stays as it is, or a table."""

__all__ = ["publish_tombstones"]


def publish_tombstones(  # noqa: PLR0913 - what is appended, by whom, and what the record says
    path: Path,
    snapshot: VerifiedSnapshot,
    tombstones: Iterable[Tombstone],
    keyring: Keyring,
    *,
    operation: Operation,
    run_id: str,
    now_ms: int,
    config: Mapping[str, str],
    models: Mapping[str, str],
    expires_ms: int | None = None,
    dry_run: bool = False,
) -> Published | None:
    """Publish the successor of a version that these tombstones make.

    Args:
        path: The store.
        snapshot: The newest version.
        tombstones: In the order in which each tenant's log takes them.
        keyring: Holds the auditor and the log keys.
        operation: What the manifest calls it.
        run_id: Likewise.
        now_ms: Clock, Unix milliseconds.
        config: Kept in the manifest (`recorded_settings`).
        models: Likewise.
        expires_ms: When readers must refuse the version; None is never.
        dry_run: Check everything and write nothing.

    Returns:
        None for a dry run.

    Raises:
        UsageError: more than a manifest can state, a missing key, or a clock far ahead of the version.
        StalePlanError: someone else published meanwhile.
        VerificationError: what is to be rewritten does not verify.
        IncompleteError: the disk is full; the newest version is unchanged.
    """
    check_dated_near(snapshot.manifest, now_ms)
    keyring.signers("auditor"), keyring.signers("log")  # a dry run must find a missing key too
    by_bucket: dict[int, list[Tombstone]] = defaultdict(list)
    for tombstone in tombstones:
        by_bucket[bucket_of(tombstone.tenant)].append(tombstone)
    draft = Draft.of(snapshot)
    manifest = partial(
        draft.manifest, operation, keyring, now_ms=now_ms, expires_ms=expires_ms, run_id=run_id, models=models,
        config=config,
    )  # fmt: skip
    sign_readable(path, manifest(), keyring)  # with the files as they are: what it says besides is the same
    if dry_run:
        return None
    with hold(path):
        for bucket in sorted(by_bucket):
            _rewrite_bucket(draft, snapshot.bucket(bucket), by_bucket[bucket], keyring)
        return publish_manifest(path, manifest(), keyring)


def _rewrite_bucket(draft: Draft, view: BucketView, added: Sequence[Tombstone], keyring: Keyring) -> None:
    tombstones = {tenant: list(items) for tenant, items in view.tombstones.items()}
    logs: dict[str, LogWriter] = {}
    for one in added:
        if one.tenant not in logs:
            logs[one.tenant] = LogWriter.following(view, one.tenant, keyring)
        tombstones.setdefault(one.tenant, []).append(logs[one.tenant].append_tombstone(one))
    bodies = [item.tombstone for items in tombstones.values() for item in in_force(items)]
    kept = {(body.tenant, body.removed_index): body.quarantines for body in bodies}  # of all that is not live
    data, quarantine = (view.files.data, view.files.quarantine) if view.files else ((), ())
    live, leaving = _staying(data, view.tables, lambda place: place not in kept)
    held, ended = _staying(quarantine, view.quarantine, lambda place: kept.get(place, False))
    draft.write(
        view.bucket, logs=logs, tombstones=tombstones, view=view, ids=kept_ids(draft.path, view.bucket, view.files),
        data=_merged(live, _parted(ended, lambda place: place not in kept)[0]),
        quarantine=_merged(held, _parted(leaving, lambda place: kept[place])[0]),
    )  # fmt: skip


def _staying(
    refs: Sequence[FileRef], tables: Sequence[pa.Table], stays: Callable[[Place], bool]
) -> tuple[Files, pa.Table]:
    """Return files with the rows that stay, and the other rows."""
    files: Files = []
    leaving = [ENTRY_SCHEMA.empty_table()]
    for ref, table in zip(refs, tables, strict=True):
        rest, others = _parted(table, stays)
        files.append((rest, rest) if others.num_rows else (ref, table))
        leaving.append(others)
    return files, pa.concat_tables(leaving)


def _merged(files: Files, rows: pa.Table) -> list[FileRef | pa.Table]:
    """Put rows into files: each into the first that has a later leaf of its tenant, else into the last."""
    merged: list[FileRef | pa.Table] = []
    for item, table in files[:-1] if rows.num_rows else ():
        here, rows = _parted(rows, _before_the_last_of(table))
        merged.append(_in_order(table, here) if here.num_rows else item)
    left = files[len(merged) :]
    if not rows.num_rows:
        return [*merged, *(item for item, _ in left)]
    return [*merged, _in_order(*(table for _, table in left), rows)]


def _before_the_last_of(table: pa.Table) -> Callable[[Place], bool]:
    found = table.group_by("tenant").aggregate([("leaf_index", "max")])
    last = dict(zip(found["tenant"].to_pylist(), found["leaf_index_max"].to_pylist(), strict=True))
    return lambda place: place[1] < last.get(place[0], 0)


def _in_order(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables).sort_by([("tenant", "ascending"), ("leaf_index", "ascending")])


def _parted(table: pa.Table, wanted: Callable[[Place], bool]) -> tuple[pa.Table, pa.Table]:
    """Return the rows that are wanted, and the others."""
    places = zip(table.column("tenant").to_pylist(), table.column("leaf_index").to_pylist(), strict=True)
    mask = pa.array([wanted(place) for place in places], pa.bool_())
    return table.filter(mask), table.filter(pc.invert(mask))
