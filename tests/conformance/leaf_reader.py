"""Reading a leaf back (`memory_audit.provenance.leaf`), strictly: for tests, vectors and fuzzing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from memory_audit.entry import Entry, Parent
from memory_audit.errors import EntryError, VerificationError
from memory_audit.provenance.leaf import MAX_LEAF_BYTES, Tombstone, encode_entry, encode_tombstone
from memory_audit.provenance.tlog.merkle import MAX_TREE_SIZE
from tests.conformance import cbor_reader

if TYPE_CHECKING:
    from memory_audit.entry import Source
    from memory_audit.provenance import cbor

__all__ = ["DecodedLeaf", "decode_leaf"]

_ENTRY, _ENTRY_FIELDS = "memaudit entry v1", 12
_TOMBSTONE, _TOMBSTONE_FIELDS = "memaudit tombstone v1", 11


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedLeaf:
    """A leaf read back from its bytes."""

    origin: str
    index: int
    body: Entry | Tombstone


def decode_leaf(data: bytes, where: str) -> DecodedLeaf:
    """Read a leaf back.

    Raises:
        VerificationError: not the one encoding of a valid entry or tombstone.
    """
    items = cbor_reader.decode(data, max_bytes=MAX_LEAF_BYTES, where=where)
    if not isinstance(items, list) or not items:
        raise VerificationError(f"{where}: a leaf is an array, got {type(items).__name__}")
    if items[0] == _ENTRY and len(items) == _ENTRY_FIELDS:
        build = _build_entry
    elif items[0] == _TOMBSTONE and len(items) == _TOMBSTONE_FIELDS:
        build = _build_tombstone
    else:
        raise VerificationError(f"{where}: unknown kind of leaf {items[0]!r:.60} with {len(items)} fields")
    origin, index = items[1], items[2]
    if not isinstance(origin, str) or not isinstance(index, int) or not 0 <= index < MAX_TREE_SIZE:
        raise VerificationError(f"{where}: origin must be text and the leaf index below {MAX_TREE_SIZE}")
    try:
        body, again = build(items, origin, index)
    except EntryError as error:
        raise VerificationError(f"{where}: {error}") from None
    if again != data:
        raise VerificationError(f"{where}: not the encoding of its fields")
    return DecodedLeaf(origin=origin, index=index, body=body)


def _build_entry(items: list[cbor.Value], origin: str, index: int) -> tuple[Entry | Tombstone, bytes]:
    _, _, _, tenant, entry_id, principal, source, request, response, created_at_ms, parents, metadata = items
    if not isinstance(parents, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in parents):
        raise EntryError("parents must be pairs of an entry id and a weight")
    if not isinstance(metadata, dict):
        raise EntryError("metadata must be a map")
    entry = Entry(  # Entry checks every type itself
        tenant=cast("str", tenant),
        entry_id=cast("str", entry_id),
        principal=cast("str", principal),
        source=cast("Source", source),
        request=cast("str", request),
        response=cast("str", response),
        created_at_ms=cast("int", created_at_ms),
        parents=tuple(Parent(entry_id=pair[0], weight_ppm=pair[1]) for pair in cast("list[list[str | int]]", parents)),  # type: ignore[arg-type]
        metadata=cast("dict[str, str]", metadata),
    )
    return entry, encode_entry(entry, origin=origin, index=index)


def _build_tombstone(items: list[cbor.Value], origin: str, index: int) -> tuple[Entry | Tombstone, bytes]:
    _, _, _, tenant, entry_id, removed_index, removed_leaf_hash, reason, run_id, created_at_ms, extra = items
    if not isinstance(extra, dict):
        raise EntryError("extra must be a map")
    tombstone = Tombstone(
        tenant=cast("str", tenant),
        entry_id=cast("str", entry_id),
        removed_index=cast("int", removed_index),
        removed_leaf_hash=cast("bytes", removed_leaf_hash),
        reason=cast("str", reason),
        run_id=cast("str", run_id),
        created_at_ms=cast("int", created_at_ms),
        extra=cast("dict[str, str]", extra),
    )
    return tombstone, encode_tombstone(tombstone, origin=origin, index=index)
