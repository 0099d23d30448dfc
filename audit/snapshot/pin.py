"""Pins: what a reader has seen, kept outside the store, so that nobody can show it less later.

    {"format": "memaudit pin v1", "store_id": "6d1f…", "version": 7, "digest": SHA-256 of manifest 7's payload,
     "logs": {"acme": {"size": 120, "root": "…"} …}}

A reader with a pin MUST refuse: another store; a lower version (rollback); the same version with another digest
(equivocation); a log that is missing or shorter than pinned (rollback, truncation); a log whose first `size` leaves do
not have the pinned root (truncate-then-append, equivocation).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.entry import MAX_NAME_BYTES
from memory_audit.errors import VerificationError
from memory_audit.provenance import durable, strict_json
from memory_audit.provenance.folder_lock import locked
from memory_audit.provenance.tlog.merkle import HASH_BYTES, MAX_TREE_SIZE
from memory_audit.snapshot.layout import MAX_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Pin", "parse_pin", "read_pin", "write_pin"]

MAX_PIN_BYTES = 1 << 30
"""A million tenants."""

_FORMAT = "memaudit pin v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The last version a reader accepted."""

    store_id: str
    version: int
    digest: str
    logs: Mapping[str, tuple[int, bytes]]
    """Tenant to tree size and root."""


def read_pin(path: Path) -> Pin | None:
    """Read a pin file; None where there is none yet (trust on first use).

    Raises:
        VerificationError: a damaged pin; remove it only if you know why.
    """
    if not path.exists():
        return None
    where = f"pin {path.name}"
    return parse_pin(durable.read_bounded(path, MAX_PIN_BYTES, where), where)


def parse_pin(data: bytes, where: str) -> Pin:
    """Read a pin from bytes. Raises VerificationError like `read_pin`."""
    fields = strict_json.Fields(strict_json.decode(data, max_bytes=MAX_PIN_BYTES, where=where), where)
    fields.expect_format(_FORMAT)
    logs: dict[str, tuple[int, bytes]] = {}
    records = fields.take("logs")
    if not isinstance(records, dict):
        raise VerificationError(f"{where}: 'logs' must be an object")
    for tenant, record in records.items():
        log = strict_json.Fields(record, f"{where}: log {tenant!r:.80}")
        if len(tenant.encode()) > MAX_NAME_BYTES:
            raise VerificationError(f"{log.where}: name longer than {MAX_NAME_BYTES} bytes")
        logs[tenant] = log.whole("size", MAX_TREE_SIZE), log.hex_bytes("root", HASH_BYTES)
        log.done()
    pin = Pin(
        store_id=fields.hex_bytes("store_id", 16).hex(),
        version=fields.whole("version", MAX_VERSION, 1),
        digest=fields.hex_bytes("digest", 32).hex(),
        logs=MappingProxyType(logs),
    )
    fields.done()
    return pin


def write_pin(path: Path, pin: Pin) -> None:
    """Write a pin in one step; of two commands at once neither sets the other's back.

    Raises:
        VerificationError: the file pins another store, a higher version, or another version of that number: a pin never
            goes back.
        IncompleteError: the disk is full; the old pin is intact.
    """
    durable.ensure_folder(path.parent)
    with locked(path.parent):
        _check_goes_on(read_pin(path), pin, path)
        durable.replace(path, strict_json.encode(_record(pin)))


def _check_goes_on(old: Pin | None, pin: Pin, path: Path) -> None:
    if old is not None and (old.store_id != pin.store_id or old.version > pin.version):
        raise VerificationError(
            f"pin {path.name}: holds version {old.version} of store {old.store_id}, "
            f"refused to set version {pin.version} of {pin.store_id}"
        )
    if old is not None and old.version == pin.version and old.digest != pin.digest:
        raise VerificationError(
            f"pin {path.name}: holds {old.digest} as version {old.version}, refused to set {pin.digest} (equivocation)"
        )


def _record(pin: Pin) -> dict[str, object]:
    return {
        "format": _FORMAT,
        "store_id": pin.store_id,
        "version": pin.version,
        "digest": pin.digest,
        "logs": {tenant: {"size": size, "root": root.hex()} for tenant, (size, root) in pin.logs.items()},
    }
