"""A version while it is built: what the one before has, and the buckets that are written anew."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from memory_audit.errors import UsageError
from memory_audit.provenance.tlog import merkle
from memory_audit.snapshot.checkpoints import encode_checkpoints
from memory_audit.snapshot.columns.tables import file_parts, write_table, write_tombstones
from memory_audit.snapshot.layout import MAX_LEAVES, FileRef, put_file, put_tile, sync_bucket
from memory_audit.snapshot.manifest import (
    MAX_SETTING_BYTES,
    BucketFiles,
    Manifest,
    checkpoints_root,
    tombstones_root,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.bucket import BucketView
    from memory_audit.snapshot.columns.tables import SignedTombstone
    from memory_audit.snapshot.ids import Ids
    from memory_audit.snapshot.layout import Kind
    from memory_audit.snapshot.manifest import Operation
    from memory_audit.snapshot.publishing.log_writer import LogWriter
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Draft", "recorded_settings"]

ROWS_PER_FILE = 16_384
"""More rows than this are split into several data files, which readers and verifiers can work on side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The next version of a store, as far as it is written."""

    path: Path
    store_id: str
    base: Manifest | None
    """The version before; None for the first."""

    buckets: dict[int, BucketFiles] = field(default_factory=dict)
    notes: dict[str, bytes] = field(default_factory=dict)
    """Tenant to signed checkpoint."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Tenant to leaves."""

    @classmethod
    def of(cls, base: VerifiedSnapshot) -> Draft:
        """Begin the successor of a version, with all that it has."""
        return cls(
            path=base.path, store_id=base.store_id, base=base.manifest, buckets=dict(base.manifest.buckets),
            notes={tenant: ref.note for tenant, ref in base.log_refs.items()},
            sizes={tenant: ref.size for tenant, ref in base.log_refs.items()},
        )  # fmt: skip

    def write(  # noqa: PLR0913 - the files of a bucket
        self,
        bucket: int,
        *,
        data: Sequence[FileRef | pa.Table],
        logs: Mapping[str, LogWriter],
        ids: Sequence[FileRef | Ids],
        tombstones: FileRef | Mapping[str, Sequence[SignedTombstone]] | None = None,
        quarantine: Sequence[FileRef | pa.Table] = (),
        view: BucketView | None = None,
    ) -> None:
        """Write the files of a bucket, in the order data, quarantine, tiles, edges, ids, tombstones, checkpoints.

        Of a log's tree only those tiles are written that it did not have: in a bucket of leaf hashes, all.

        Args:
            bucket: Its number.
            data: Files that stay as they are, and tables of live entries to write; leaf indices of a tenant rise.
            logs: The logs that changed.
            ids: Files that stay as they are, and runs to write (`memory_audit.snapshot.ids`).
            tombstones: All of the bucket, by tenant; or the file that stays as it is.
            quarantine: Likewise as `data`, of the entries in quarantine.
            view: The bucket before, whose other logs stay; None where it had none.

        Raises:
            UsageError: no reader would take it.
            IncompleteError: the disk is full, or another operating system error.
        """
        others = {} if view is None else {tenant: ref for tenant, ref in view.refs.items() if tenant not in logs}
        trees = {tenant: log.tree for tenant, log in logs.items()}
        if view is not None:
            trees |= {tenant: view.tree(tenant) for tenant in others}
        if (leaves := sum(tree.size for tree in trees.values())) > MAX_LEAVES:
            raise UsageError(
                f"{len(trees)} tenants in one bucket have {leaves} leaves, and readers take {MAX_LEAVES}: put some "
                "into another store"
            )
        data_refs, quarantine_refs = self._put("data", bucket, data), self._put("quarantine", bucket, quarantine)
        for tree in trees.values():
            for tree_hash, tile in tree.new_tiles.items():
                put_tile(self.path, bucket, tree_hash, tile)
        edges = b"".join(trees[tenant].edge() for tenant in sorted(trees))
        edges_ref = put_file(self.path, "edges", bucket, edges, len(edges) // merkle.HASH_BYTES)
        ids_refs = tuple(
            item if isinstance(item, FileRef) else put_file(self.path, "ids", bucket, item.tobytes(), len(item))
            for item in ids
        )
        if tombstones is not None and not isinstance(tombstones, FileRef):
            stones = [item for tenant in sorted(tombstones) for item in tombstones[tenant]]
            tombstones = put_file(self.path, "tombstones", bucket, write_tombstones(stones), len(stones))
        notes = {tenant: log.checkpoint() for tenant, log in logs.items()}
        self.notes.update(notes)
        self.sizes.update((tenant, log.tree.size) for tenant, log in logs.items())
        notes |= {tenant: ref.note for tenant, ref in others.items()}
        checkpoints_ref = put_file(self.path, "checkpoints", bucket, encode_checkpoints(notes), len(notes))
        sync_bucket(self.path, bucket)
        self.buckets[bucket] = BucketFiles(
            data=data_refs, hashes=edges_ref, checkpoints=checkpoints_ref, tombstones=tombstones,
            quarantine=quarantine_refs, ids=ids_refs,
        )  # fmt: skip

    def _put(self, kind: Kind, bucket: int, files: Sequence[FileRef | pa.Table]) -> tuple[FileRef, ...]:
        refs: list[FileRef] = []
        for item in files:
            if isinstance(item, pa.Table):
                parts = file_parts(item, ROWS_PER_FILE)
                refs += [put_file(self.path, kind, bucket, write_table(it), it.num_rows) for it in parts]
            else:
                refs.append(item)
        return tuple(refs)

    def manifest(  # noqa: PLR0913 - what a manifest says besides its files
        self,
        operation: Operation,
        keyring: Keyring,
        *,
        now_ms: int,
        expires_ms: int | None,
        run_id: str = "",
        models: Mapping[str, str] = MappingProxyType({}),
        config: Mapping[str, str] = MappingProxyType({}),
    ) -> Manifest:
        """Return the manifest of what is written so far."""
        return Manifest(
            store_id=self.store_id,
            version=1 if self.base is None else self.base.version + 1,
            oldest=1 if self.base is None else self.base.oldest,
            operation=operation,
            parent=None if self.base is None else self.base.digest,
            created_ms=now_ms,
            expires_ms=expires_ms,
            run_id=run_id,
            policy_version=keyring.policy.version,
            policy_sha256=keyring.policy.digest,
            models=recorded_settings(models),
            config=recorded_settings(config),
            entries=sum(ref.rows for files in self.buckets.values() for ref in files.data),
            leaves=sum(self.sizes.values()),
            tenants=len(self.notes),
            checkpoints_root=checkpoints_root(self.notes[tenant] for tenant in sorted(self.notes)),
            tombstones_root=tombstones_root(self.buckets),
            buckets=MappingProxyType(dict(self.buckets)),
        )


def recorded_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what manifest and attestation say of a run's configuration or models.

    A text that is longer than their readers accept stands there as `sha256:` and its SHA-256 (hex): it can be compared
    with the run's, and a long prompt does not keep a finished audit from being purged.
    """
    return {name: _recorded(text) for name, text in settings.items()}


def _recorded(text: str) -> str:
    raw = text.encode()
    return text if len(raw) <= MAX_SETTING_BYTES else f"sha256:{hashlib.sha256(raw).hexdigest()}"
