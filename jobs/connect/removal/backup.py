"""The backup of a removal: every row that it deletes or changes, encrypted before anything is touched.

An age file (https://age-encryption.org/v1) for the recipients of --backup-to, so that this machine cannot read what it
wrote, and any age or rage can: `age -d -i KEY backup.age`. Inside are JSON lines: a head, then a row each.

    {"format": "memaudit backup v1", "address": "mem0:…", "holds": "what was removed as harmful: destroy it …"}
    {"layer": "history", "row": base64 of its bytes, "kept": base64 of what stays of it, or null}

Beside it lies `backup.dsse.json`, an in-toto Statement v1 of the auditor with its SHA-256, so that nobody puts
something else back. It holds the poison until it is destroyed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_at_most
from memory_audit.provenance import dsse, durable, strict_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memory_audit.jobs.connect.connector import Row
    from memory_audit.provenance.keys import Keyring

__all__ = ["BACKUP_FILE", "Recipient", "is_backup", "read_recipients", "write_backup"]

BACKUP_FILE, STATEMENT_FILE = "backup.age", "backup.dsse.json"
FORMAT = "memaudit backup v1"
HOLDS = "what was removed as harmful: no agent may read it; destroy it when nobody will need it back"

PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "urn:memaudit:backup:v1"

MAX_RECIPIENTS_BYTES = 65_536


class Recipient:
    """Somebody who can read a backup."""

    def __init__(self, line: str) -> None:
        import pyrage  # noqa: PLC0415 - needed only here

        kind = pyrage.ssh if line.startswith("ssh-") else pyrage.x25519
        try:
            self.key = kind.Recipient.from_str(line)
        except pyrage.RecipientError as error:
            raise UsageError(f"--backup-to: {line!r:.60} is no public key of age or ssh ({error!s:.100})") from None


def read_recipients(given: str) -> list[Recipient]:
    """Read whom a backup is for.

    Args:
        given: A public key, `age1…` or `ssh-ed25519 …`, or a file with one a line.

    Raises:
        UsageError: none, or not public keys.
    """
    text = given
    if not given.startswith(("age1", "ssh-")):
        text = read_at_most(Path(given), MAX_RECIPIENTS_BYTES).decode(errors="replace")
    lines = (line.strip() for line in text.splitlines())
    found = [Recipient(line) for line in lines if line and not line.startswith("#")]
    if not found:
        raise UsageError(f"--backup-to {given!r:.80}: no public key in it")
    return found


def write_backup(
    folder: Path, address: str, rows: Iterable[Row], to: Sequence[Recipient], keyring: Keyring
) -> dict[str, Any]:
    """Write and sign the backup of what is to be deleted or changed, durably, readable by its owner only.

    Returns:
        `sha256`, `bytes`, and `rows` by layer.

    Raises:
        IncompleteError: the disk is full.
    """
    import pyrage  # noqa: PLC0415 - needed only here

    counts: dict[str, int] = {}

    def lines() -> Iterator[bytes]:
        yield _line({"format": FORMAT, "address": address, "holds": HOLDS})
        for row in rows:
            if row.kept != row.raw:
                counts[row.layer] = counts.get(row.layer, 0) + 1
                kept = None if row.kept is None else base64.b64encode(row.kept).decode()
                yield _line({"layer": row.layer, "row": base64.b64encode(row.raw).decode(), "kept": kept})

    data = pyrage.encrypt(b"".join(lines()), [recipient.key for recipient in to])
    durable.replace(folder / BACKUP_FILE, data, mode=0o600)
    found = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "rows": counts}
    statement = {
        "_type": "https://in-toto.io/Statement/v1", "predicateType": PREDICATE_TYPE,
        "subject": [{"name": BACKUP_FILE, "digest": {"sha256": found["sha256"]}}],
        "predicate": {"source": address, "rows": counts, "holds": HOLDS},
    }  # fmt: skip
    signed = dsse.seal(PAYLOAD_TYPE, strict_json.encode(statement), keyring.signers("auditor"))
    durable.replace(folder / STATEMENT_FILE, signed)
    return found


def is_backup(folder: Path, found: Mapping[str, Any]) -> bool:
    """Tell whether the backup lies there as it was written; `found` is what that returned."""
    try:
        return hashlib.sha256((folder / BACKUP_FILE).read_bytes()).hexdigest() == str(found["sha256"])
    except OSError:
        return False


def _line(record: dict[str, object]) -> bytes:
    return json.dumps(record).encode() + b"\n"
