"""The signed bytes of a log: entry leaves and tombstone leaves.

A leaf is one deterministic CBOR array (`memory_audit.provenance.cbor`), so every field has its place and none can be
missing:

    ["memaudit entry v1", origin, leaf index, tenant, entry id, principal, source, request, response, created_at_ms,
     [[parent id, weight in ppm] …], {metadata}]
    ["memaudit tombstone v1", origin, leaf index, tenant, entry id, removed leaf index, removed leaf hash, reason,
     run id, created_at_ms, {extra}]

Origin (store and tenant) and leaf index are part of the leaf, so an entry cannot be moved within its log, nor replayed
in another tenant's or another store's. A tombstone names the leaf it removes by index and by hash. With QUARANTINE in
its extra items it removes nothing for good (`memory_audit.snapshot.quarantine`).

Signed is SIGNATURE_DOMAIN followed by the leaf: no signature over a leaf is one over a note or an envelope. The leaf
hash (RFC 6962) covers the leaf alone. Leaves are not stored. A reader of one MUST reject any encoding but the one that
`encode_entry` or `encode_tombstone` gives for its fields, an unknown kind, and, unread, more than MAX_LEAF_BYTES.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.entry import MAX_NAME_BYTES, MAX_TIME_MS, by_fields, check_int, check_text
from memory_audit.errors import EntryError
from memory_audit.provenance import cbor
from memory_audit.provenance.ed25519 import SIGNATURE_BYTES
from memory_audit.provenance.tlog.merkle import HASH_BYTES, MAX_TREE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memory_audit.entry import Entry

__all__ = [
    "ENTRY_HEAD",
    "LEAF_START",
    "MAX_LEAF_BYTES",
    "MAX_REASON_BYTES",
    "QUARANTINE",
    "SIGNATURE_DOMAIN",
    "Tombstone",
    "encode_entry",
    "encode_tombstone",
    "entry_encoder",
]

SIGNATURE_DOMAIN = b"memaudit leaf v1\x00"

MAX_LEAF_BYTES = 1 << 20
"""Above the largest entry: two texts of 64 KiB, 64 metadata items of 4.25 KiB, 256 parents of 0.25 KiB, their heads."""

MAX_REASON_BYTES = 4_096

MAX_EXTRA_ITEMS = 16
MAX_EXTRA_VALUE_BYTES = 65_536
"""A hazard signature with its embedding as text fits."""

QUARANTINE: Mapping[str, str] = MappingProxyType({"quarantine": "memaudit quarantine v1"})
"""Extra item of a tombstone whose entry is kept, and may come back."""

_ENTRY = "memaudit entry v1"
_TOMBSTONE = "memaudit tombstone v1"
_ENTRY_FIELDS = 12

ENTRY_HEAD = bytes((0x80 + _ENTRY_FIELDS,)) + cbor.encode_text(_ENTRY)
"""What every entry leaf starts with, before its origin."""

LEAF_START = SIGNATURE_BYTES + len(SIGNATURE_DOMAIN)
"""Where the leaf starts in a signature followed by what it signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A log operation: from this leaf on, an earlier leaf no longer counts.

    Raises:
        EntryError: a field breaks a rule of the format.
    """

    tenant: str
    entry_id: str
    """Id of the removed entry: it may not come back under it."""

    removed_index: int
    removed_leaf_hash: bytes
    reason: str
    run_id: str
    created_at_ms: int
    extra: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Room for hazard signatures, and for QUARANTINE."""

    def __post_init__(self) -> None:
        where = f"tombstone of {self.entry_id!r:.80}"
        check_text(self.tenant, f"{where}: tenant", MAX_NAME_BYTES, may_be_empty=False)
        check_text(self.entry_id, f"{where}: entry_id", MAX_NAME_BYTES, may_be_empty=False)
        check_int(self.removed_index, f"{where}: removed_index", MAX_TREE_SIZE)
        if not isinstance(self.removed_leaf_hash, bytes) or len(self.removed_leaf_hash) != HASH_BYTES:
            raise EntryError(f"{where}: removed_leaf_hash must be {HASH_BYTES} bytes")
        check_text(self.reason, f"{where}: reason", MAX_REASON_BYTES, may_be_empty=False)
        check_text(self.run_id, f"{where}: run_id", MAX_NAME_BYTES, may_be_empty=False)
        check_int(self.created_at_ms, f"{where}: created_at_ms", MAX_TIME_MS)
        if len(self.extra) > MAX_EXTRA_ITEMS:
            raise EntryError(f"{where}: {len(self.extra)} extra items, at most {MAX_EXTRA_ITEMS}")
        for key, value in self.extra.items():
            check_text(key, f"{where}: extra key", MAX_NAME_BYTES, may_be_empty=False)
            check_text(value, f"{where}: extra value", MAX_EXTRA_VALUE_BYTES, may_be_empty=True)
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))

    def __reduce__(self) -> tuple[object, ...]:
        return by_fields(self)

    @property
    def quarantines(self) -> bool:
        """Whether the entry is kept, and may come back."""
        return self.extra.items() >= QUARANTINE.items()


def encode_entry(entry: Entry, *, origin: str, index: int) -> bytes:
    """Return the leaf of `entry` at `index` of the log `origin`."""
    return entry_encoder(origin, entry.tenant)(entry, index)


def entry_encoder(origin: str, tenant: str) -> Callable[[Entry, int], bytes]:
    """Return an encoder for many entries of one log: what they share is encoded once."""
    head, tenant_text = ENTRY_HEAD + cbor.encode_text(origin), cbor.encode_text(tenant)
    text_head, number = cbor.text_head, cbor.encode_number

    def text(value: str) -> bytes:
        raw = value.encode()
        return text_head(len(raw)) + raw

    def encode_one(entry: Entry, index: int) -> bytes:
        edges = notes = None
        if entry.parents:
            edges = cbor.encode_array(
                [b"\x82" + text(item.entry_id) + number(item.weight_ppm) for item in entry.parents]
            )
        if entry.metadata:
            notes = cbor.encode_map([(text(key), text(value)) for key, value in entry.metadata.items()])
        return b"".join((
            head, number(index), tenant_text, text(entry.entry_id), text(entry.principal), text(entry.source),
            text(entry.request), text(entry.response), number(entry.created_at_ms), edges or b"\x80", notes or b"\xa0",
        ))  # fmt: skip

    return encode_one


def encode_tombstone(tombstone: Tombstone, *, origin: str, index: int) -> bytes:
    """Return the leaf of `tombstone` at `index` of the log `origin`."""
    return cbor.encode([
        _TOMBSTONE, origin, index, tombstone.tenant, tombstone.entry_id, tombstone.removed_index,
        tombstone.removed_leaf_hash, tombstone.reason, tombstone.run_id, tombstone.created_at_ms, tombstone.extra,
    ])  # fmt: skip
