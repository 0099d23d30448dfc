r"""The checkpoint file of a bucket: the signed note of each of its logs, in order of tenant.

    {"format": "memaudit checkpoints v1", "logs": [{"note": "memaudit/6d1f…/acme\n3\n…", "tenant": "acme"} …]}

The sizes in the notes say where each log's hashes lie in the bucket's file of partial tiles, or of leaf hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import strict_json
from memory_audit.provenance.tlog.checkpoint import parse_checkpoint_text
from memory_audit.provenance.tlog.merkle import HASH_BYTES
from memory_audit.provenance.tlog.note import MAX_NOTE_BYTES, parse_note
from memory_audit.provenance.tlog.tiles import edge_bytes
from memory_audit.snapshot.layout import MAX_LEAVES, FileRef, bucket_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LogRef", "encode_checkpoints", "parse_checkpoints"]

MAX_LOGS_PER_BUCKET = 1_000_000
MAX_CHECKPOINTS_BYTES = 64 << 20
"""A quarter of a million logs in one bucket; JSON takes many times its size in memory."""

_FORMAT = "memaudit checkpoints v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRef:
    """One tenant's log as its checkpoint file states it; the note's signature is not verified yet."""

    tenant: str
    bucket: int
    note: bytes
    size: int
    """Leaves, as the note states."""

    start: int
    """Byte offset of its hashes in the bucket's file of them."""

    tiled: bool
    """Whether these are the partial tiles of its tree, or all its leaf hashes."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of its hashes there."""
        return edge_bytes(self.size) if self.tiled else self.size * HASH_BYTES


def encode_checkpoints(notes: Mapping[str, bytes]) -> bytes:
    """Return the checkpoint file of a bucket from tenant to signed note.

    Raises:
        UsageError: no reader would take it.
    """
    logs = [{"tenant": tenant, "note": notes[tenant].decode()} for tenant in sorted(notes)]
    data = strict_json.encode({"format": _FORMAT, "logs": logs})
    if len(data) > MAX_CHECKPOINTS_BYTES:
        raise UsageError(
            f"{len(notes)} tenants in one bucket have {len(data)} bytes of checkpoints, and readers take "
            f"{MAX_CHECKPOINTS_BYTES}: put some into another store"
        )
    return data


def parse_checkpoints(data: bytes, bucket: int, hashes: FileRef, where: str, *, tiled: bool) -> list[LogRef]:
    """Read the checkpoint file of a bucket.

    Args:
        data: The file.
        bucket: Its bucket.
        hashes: The file of the logs' hashes.
        where: The checkpoint file's name, for errors.
        tiled: Whether these are partial tiles, or all leaf hashes.

    Raises:
        VerificationError: not that format, a tenant of another bucket or out of order, or sizes that do not add up to
            the file of hashes, or are those of more than MAX_LEAVES.
    """
    fields = strict_json.Fields(strict_json.decode(data, max_bytes=MAX_CHECKPOINTS_BYTES, where=where), where)
    fields.expect_format(_FORMAT)
    logs: list[LogRef] = []
    start = 0
    for item in fields.objects("logs", MAX_LOGS_PER_BUCKET):
        tenant = item.text("tenant")
        note = item.text("note", MAX_NOTE_BYTES).encode()
        item.done()
        if bucket_of(tenant) != bucket or (logs and tenant <= logs[-1].tenant):
            raise VerificationError(f"{where}: tenant {tenant!r:.80} is out of order or in another bucket")
        size = parse_checkpoint_text(parse_note(note, item.where).text, item.where).size
        logs.append(LogRef(tenant=tenant, bucket=bucket, note=note, size=size, start=start, tiled=tiled))
        start += logs[-1].stored_bytes
    fields.done()
    if start != hashes.size or start // HASH_BYTES != hashes.rows:
        raise VerificationError(
            f"{where}: checkpoints take {start // HASH_BYTES} hashes, {hashes.sha256} holds {hashes.rows} "
            f"in {hashes.size} bytes"
        )
    if (leaves := sum(log.size for log in logs)) > MAX_LEAVES:
        raise VerificationError(f"{where}: checkpoints state {leaves} leaves, at most {MAX_LEAVES} are read")
    return logs
