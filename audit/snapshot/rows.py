"""Entries as raw rows, for verification at the speed of the signatures.

Building an `Entry` checks each field in Python; a store of a million entries is judged column by column instead, by the
same limits (`audit.entry`), and its leaves are encoded straight from the columns' UTF-8. `Entry` objects are built only
for those who ask to read them.
"""

from __future__ import annotations

import unicodedata
from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar, get_args

import pyarrow as pa
import pyarrow.compute as pc

from audit.entry import (
    MAX_METADATA_ITEMS,
    MAX_METADATA_VALUE_BYTES,
    MAX_NAME_BYTES,
    MAX_PARENTS,
    MAX_TEXT_BYTES,
    MAX_TIME_MS,
    PARTS_PER_MILLION,
    Source,
)
from audit.errors import VerificationError
from audit.provenance.merkle import MAX_TREE_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["EntryRow", "read_rows", "rows_by_tenant"]

_Value = TypeVar("_Value")


class EntryRow(NamedTuple):
    """One row of a data file; texts are the UTF-8 of checked NFC text."""

    tenant: str
    leaf_index: int
    entry_id: bytes
    principal: bytes
    source: bytes
    request: bytes
    response: bytes
    created_at_ms: int
    parents: Sequence[tuple[bytes, int]]
    metadata: Sequence[tuple[bytes, bytes]]
    key_id: str
    signature: bytes


def read_rows(table: pa.Table, where: str) -> list[EntryRow]:
    """Read a table of entries and check the limits of the format; signatures are not verified here.

    Raises:
        VerificationError: a value that no entry may have.
    """
    try:
        table.validate(full=True)  # UTF-8, offsets
    except pa.ArrowInvalid as error:
        raise VerificationError(f"{where}: {str(error)[:120]}") from None
    for name, limit, may_be_empty in (
        ("tenant", MAX_NAME_BYTES, False),
        ("entry_id", MAX_NAME_BYTES, False),
        ("principal", MAX_NAME_BYTES, False),
        ("request", MAX_TEXT_BYTES, True),
        ("response", MAX_TEXT_BYTES, True),
    ):
        _check_texts(table.column(name), f"{where}: {name}", limit, may_be_empty=may_be_empty)
    if not _all(pc.is_in(table.column("source"), value_set=pa.array(get_args(Source)))):
        raise VerificationError(f"{where}: a source that is none of {', '.join(get_args(Source))}")
    _check_numbers(table.column("created_at_ms"), f"{where}: created_at_ms", MAX_TIME_MS)
    _check_numbers(table.column("leaf_index"), f"{where}: leaf_index", MAX_TREE_SIZE)
    texts = [_utf8(table.column(name)) for name in ("entry_id", "principal", "source", "request", "response")]
    columns = [
        table.column("tenant").to_pylist(),
        table.column("leaf_index").to_pylist(),
        *texts,
        table.column("created_at_ms").to_pylist(),
        _parents(table.column("parents"), where),
        _metadata(table.column("metadata"), where),
        table.column("key_id").to_pylist(),
        table.column("signature").to_pylist(),
    ]
    return [EntryRow(*row) for row in zip(*columns, strict=True)]


def rows_by_tenant(rows: Sequence[EntryRow]) -> Iterator[tuple[str, list[EntryRow]]]:
    """Split rows into runs of one tenant."""
    for tenant, run in groupby(rows, key=attrgetter("tenant")):
        yield tenant, list(run)


def _check_texts(column: pa.ChunkedArray, where: str, limit_bytes: int, *, may_be_empty: bool) -> None:
    sizes = pc.min_max(pc.binary_length(column)).as_py()
    if sizes["max"] is None:
        return
    if sizes["max"] > limit_bytes or (sizes["min"] == 0 and not may_be_empty):
        raise VerificationError(f"{where}: {sizes['min']} to {sizes['max']} bytes, at most {limit_bytes} are allowed")
    foreign = column.filter(pc.invert(pc.string_is_ascii(column)))
    if not all(unicodedata.is_normalized("NFC", text) for text in foreign.to_pylist()):
        raise VerificationError(f"{where}: text that is not in Unicode normal form NFC")


def _check_numbers(column: pa.ChunkedArray, where: str, maximum: int) -> None:
    largest = pc.max(column).as_py()
    if largest is not None and largest > maximum:
        raise VerificationError(f"{where}: {largest}, at most {maximum} is allowed")


def _parents(column: pa.ChunkedArray, where: str) -> list[Sequence[tuple[bytes, int]]]:
    chunk = _one_chunk(column)
    offsets = chunk.offsets.to_pylist()
    edges = chunk.values.slice(offsets[0], offsets[-1] - offsets[0])
    if not len(edges):
        return [()] * len(chunk)
    ids, weights = pa.chunked_array([edges.field("entry_id")]), pa.chunked_array([edges.field("weight_ppm")])
    _check_texts(ids, f"{where}: parent id", MAX_NAME_BYTES, may_be_empty=False)
    _check_numbers(weights, f"{where}: parent weight_ppm", PARTS_PER_MILLION)
    pairs = list(zip(_utf8(ids), weights.to_pylist(), strict=True))
    return _split(pairs, offsets, MAX_PARENTS, f"{where}: parents")


def _metadata(column: pa.ChunkedArray, where: str) -> list[Sequence[tuple[bytes, bytes]]]:
    chunk = _one_chunk(column)
    offsets = chunk.offsets.to_pylist()
    size = offsets[-1] - offsets[0]
    if not size:
        return [()] * len(chunk)
    keys = pa.chunked_array([chunk.keys.slice(offsets[0], size)])
    values = pa.chunked_array([chunk.items.slice(offsets[0], size)])
    _check_texts(keys, f"{where}: metadata key", MAX_NAME_BYTES, may_be_empty=False)
    _check_texts(values, f"{where}: metadata value", MAX_METADATA_VALUE_BYTES, may_be_empty=True)
    pairs = list(zip(_utf8(keys), _utf8(values), strict=True))
    return _split(pairs, offsets, MAX_METADATA_ITEMS, f"{where}: metadata")


def _split(
    pairs: list[tuple[bytes, _Value]], offsets: list[int], limit: int, where: str
) -> list[Sequence[tuple[bytes, _Value]]]:
    """Cut a flattened list at its offsets; in each part no first member may appear twice."""
    first = offsets[0]
    parts: list[Sequence[tuple[bytes, _Value]]] = []
    for start, end in pairwise(offsets):
        part = pairs[start - first : end - first]
        if len(part) > 1 and (len(part) > limit or len({name for name, _ in part}) != len(part)):
            raise VerificationError(f"{where}: more than {limit}, or one twice")
        parts.append(part)
    return parts


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _utf8(column: pa.ChunkedArray) -> list[bytes]:
    values: list[bytes] = column.cast(pa.binary()).to_pylist()
    return values


def _all(column: pa.ChunkedArray) -> bool:
    return bool(pc.all(column, min_count=0).as_py())
