"""Entries as columns, for verification at the speed of the signatures.

Building an `Entry` checks each field in Python; a store of a million entries is judged column by column instead, by the
same limits (`memory_audit.entry`), and its signed leaves (`memory_audit.provenance.leaf`) are put together from the
columns' UTF-8, a batch of rows at a time. `Entry` objects are built only for those who ask to read them.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_audit.entry import (
    MAX_METADATA_ITEMS,
    MAX_METADATA_VALUE_BYTES,
    MAX_NAME_BYTES,
    MAX_PARENTS,
    MAX_TIME_MS,
    PARTS_PER_MILLION,
    TEXTS,
    Source,
)
from memory_audit.errors import VerificationError
from memory_audit.provenance.leaf import ENTRY_HEAD, LEAF_START, SIGNATURE_DOMAIN
from memory_audit.provenance.tlog.merkle import MAX_TREE_SIZE
from memory_audit.snapshot.columns import cbor_columns as cbor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["LEAF_HASH_START", "check_rows_format", "signed_leaves", "tenants_of"]

BATCH_ROWS = 2_048
"""Leaves put together at a time: a megabyte or so, which stays in the processor's cache until it is verified."""

LEAF_HASH_START = LEAF_START - 1
"""Where in a signed leaf the input of its leaf hash starts: SIGNATURE_DOMAIN ends in the 0x00 of RFC 6962's leaves."""


def check_rows_format(table: pa.Table, where: str) -> None:
    """Check the limits of the format, column by column; neither hashes nor signatures are looked at.

    Raises:
        VerificationError: a value that no entry may have.
    """
    try:
        table.validate(full=True)  # UTF-8, offsets
    except pa.ArrowInvalid as error:
        raise VerificationError(f"{where}: {str(error)[:120]}") from None
    for name, limit, may_be_empty in TEXTS:
        for chunk in table.column(name).chunks:
            _check_texts(chunk, f"{where}: {name}", limit, may_be_empty=may_be_empty)
    if not bool(pc.all(pc.is_in(table.column("source"), value_set=pa.array(get_args(Source))), min_count=0).as_py()):
        raise VerificationError(f"{where}: a source that is none of {', '.join(get_args(Source))}")
    _check_numbers(table.column("created_at_ms"), f"{where}: created_at_ms", MAX_TIME_MS)
    _check_numbers(table.column("leaf_index"), f"{where}: leaf_index", MAX_TREE_SIZE)
    for chunk in table.column("parents").chunks:
        edges, counts = _children(chunk, chunk.values)
        _check_texts(edges.field("entry_id"), f"{where}: parent id", MAX_NAME_BYTES, may_be_empty=False)
        _check_numbers(edges.field("weight_ppm"), f"{where}: parent weight_ppm", PARTS_PER_MILLION)
        _check_sets(edges.field("entry_id"), counts, MAX_PARENTS, f"{where}: parents")
    for chunk in table.column("metadata").chunks:
        keys, counts = _children(chunk, chunk.keys)
        _check_texts(keys, f"{where}: metadata key", MAX_NAME_BYTES, may_be_empty=False)
        values, _ = _children(chunk, chunk.items)
        _check_texts(values, f"{where}: metadata value", MAX_METADATA_VALUE_BYTES, may_be_empty=True)
        _check_sets(keys, counts, MAX_METADATA_ITEMS, f"{where}: metadata")


def tenants_of(column: pa.ChunkedArray | pa.Array) -> tuple[list[str], NDArray[np.intp]]:
    """Return the names in a column of tenants, each once, and for each row the position of its name."""
    encoded = column.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.intp)


def signed_leaves(table: pa.Table, origins: dict[str, str]) -> Iterator[list[bytes]]:
    """Put together, for each row of a table that passed `check_rows_format`, its signature and what it signs.

    Args:
        table: Rows of data files.
        origins: Tenant to the origin of its log.

    Yields:
        For at most BATCH_ROWS rows, each row's signature, SIGNATURE_DOMAIN and leaf, as one bytes object.
    """
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield _signed_leaves(batch, origins)


def _signed_leaves(batch: pa.RecordBatch, origins: dict[str, str]) -> list[bytes]:
    column = batch.column
    tenants, places = tenants_of(column("tenant"))
    heads = [SIGNATURE_DOMAIN + ENTRY_HEAD + cbor.one_text(origins[tenant]) for tenant in tenants]
    names = [cbor.one_text(tenant) for tenant in tenants]
    edges, edge_counts = _children(column("parents"), column("parents").values)
    parents = cbor.join(
        cbor.heads(cbor.ARRAY, np.full(len(edges), 2, np.uint64)),
        *cbor.texts(edges.field("entry_id")),
        cbor.numbers(edges.field("weight_ppm")),
    )
    keys, value_counts = _children(column("metadata"), column("metadata").keys)
    values, _ = _children(column("metadata"), column("metadata").items)
    order = _map_order(keys, value_counts)
    if order is not None:
        keys, values = keys.take(order), values.take(order)
    metadata = cbor.join(*cbor.texts(keys), *cbor.texts(values))
    leaves = cbor.join(
        column("signature").cast(pa.binary()).cast(pa.large_binary()),
        pa.array(heads, pa.large_binary()).take(pa.array(places)),
        cbor.numbers(column("leaf_index")),
        pa.array(names, pa.large_binary()).take(pa.array(places)),
        *cbor.texts(column("entry_id")),
        *cbor.texts(column("principal")),
        *cbor.texts(column("source")),
        *cbor.texts(column("request")),
        *cbor.texts(column("response")),
        cbor.numbers(column("created_at_ms")),
        cbor.heads(cbor.ARRAY, edge_counts),
        cbor.regroup(parents, edge_counts),
        cbor.heads(cbor.MAP, value_counts),
        cbor.regroup(metadata, value_counts),
    )
    return cbor.split(leaves)


def _children(column: pa.ListArray | pa.MapArray, children: pa.Array) -> tuple[Any, NDArray[np.uint64]]:
    """Return the children that the rows of a (sliced) column of lists hold, and how many each row has."""
    offsets = column.offsets.to_numpy()
    return children.slice(offsets[0], offsets[-1] - offsets[0]), np.diff(offsets).astype(np.uint64)


def _map_order(keys: pa.Array, counts: NDArray[np.uint64]) -> pa.Array | None:
    """Order in which the keys of each row stand in deterministic CBOR; None where they stand so already."""
    if counts.max(initial=0) < 2:  # noqa: PLR2004 - nothing to order
        return None
    encoded = keys.dictionary_encode()
    names = [name.encode() for name in encoded.dictionary.to_pylist()]
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=lambda place: (len(names[place]), names[place]))] = np.arange(len(names))
    rows = np.repeat(np.arange(len(counts)), counts.astype(np.int64))
    wanted = rows * len(names) + ranks[encoded.indices.to_numpy()]
    return None if np.all(wanted[1:] > wanted[:-1]) else pa.array(np.argsort(wanted, kind="stable"))


def _check_texts(column: pa.Array, where: str, limit_bytes: int, *, may_be_empty: bool) -> None:
    sizes = pc.min_max(pc.binary_length(column)).as_py()
    if sizes["max"] is None:
        return
    if sizes["max"] > limit_bytes or (sizes["min"] == 0 and not may_be_empty):
        raise VerificationError(f"{where}: {sizes['min']} to {sizes['max']} bytes, at most {limit_bytes} are allowed")
    ascii_only = pc.string_is_ascii(column)
    if pc.all(ascii_only).as_py():
        return
    foreign = column.filter(pc.invert(ascii_only))
    if not all(unicodedata.is_normalized("NFC", text) for text in foreign.to_pylist()):
        raise VerificationError(f"{where}: text that is not in Unicode normal form NFC")


def _check_numbers(column: pa.ChunkedArray | pa.Array, where: str, maximum: int) -> None:
    largest = pc.max(column).as_py()
    if largest is not None and largest > maximum:
        raise VerificationError(f"{where}: {largest}, at most {maximum} is allowed")


def _check_sets(names: pa.Array, counts: NDArray[np.uint64], limit: int, where: str) -> None:
    """Refuse a row that holds more than `limit` children, or one name twice."""
    most = counts.max(initial=0)
    if most < 2:  # noqa: PLR2004 - one child differs from all others
        return
    encoded = names.dictionary_encode()
    rows = np.repeat(np.arange(len(counts)), counts.astype(np.int64))
    pairs = np.sort(rows * len(encoded.dictionary) + encoded.indices.to_numpy())
    if most > limit or np.any(pairs[1:] == pairs[:-1]):
        raise VerificationError(f"{where}: more than {limit}, or one twice")
