"""Entries and tombstones as Parquet: one column per field, so that any Parquet reader can look at a store.

Leaf bytes are not stored: they follow from the columns (`memory_audit.provenance.leaf`), so no copy of an entry can
differ from what was signed. Files are parsed only after their digest matched a signed manifest, and decoded only where
they are written as here and within the bounds of `memory_audit.parquet`: who signed may be an attacker.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from memory_audit import parquet
from memory_audit.entry import Entry, Parent
from memory_audit.errors import EntryError, VerificationError
from memory_audit.provenance.leaf import Tombstone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

__all__ = [
    "SignedEntry",
    "SignedTombstone",
    "file_parts",
    "read_entries",
    "read_table",
    "read_tombstones",
    "write_entries",
    "write_table",
    "write_tombstones",
]


def _schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


_PARENT = pa.struct([pa.field("entry_id", pa.string(), nullable=False), pa.field("weight_ppm", pa.uint32(), False)])
_SIGNATURE = pa.struct([pa.field("key_id", pa.string(), nullable=False), pa.field("signature", pa.binary(64), False)])

ENTRY_SCHEMA = _schema(
    ("tenant", pa.string()),
    ("leaf_index", pa.uint64()),
    ("entry_id", pa.string()),
    ("principal", pa.string()),
    ("source", pa.string()),
    ("request", pa.string()),
    ("response", pa.string()),
    ("created_at_ms", pa.uint64()),
    ("parents", pa.list_(pa.field("element", _PARENT, nullable=False))),
    ("metadata", pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))),
    ("key_id", pa.string()),
    ("signature", pa.binary(64)),
)

TOMBSTONE_SCHEMA = _schema(
    ("tenant", pa.string()),
    ("leaf_index", pa.uint64()),
    ("entry_id", pa.string()),
    ("removed_index", pa.uint64()),
    ("removed_leaf_hash", pa.binary(32)),
    ("reason", pa.string()),
    ("run_id", pa.string()),
    ("created_at_ms", pa.uint64()),
    ("extra", pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))),
    ("signatures", pa.list_(pa.field("element", _SIGNATURE, nullable=False))),
)

ROWS_PER_GROUP = 2_048
"""Parquet row groups are the smallest pieces of a file that verifiers share out among processes."""

DATA_FILE_BYTES = 256 << 20
"""Of texts and all else in memory, before a table is cut into several data files; a row at its limits has half a MB."""

_REPEATING = ("tenant", "principal", "source", "key_id", "run_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEntry:
    """An entry at its place in the log."""

    entry: Entry
    index: int
    key_id: str
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTombstone:
    """A tombstone at its place in the log."""

    tombstone: Tombstone
    index: int
    signatures: tuple[tuple[str, bytes], ...]
    """Key id and signature of each auditor."""


def write_entries(entries: Sequence[SignedEntry]) -> pa.Table:
    """Return the table of signed entries, in the order given."""
    columns: dict[str, list[Any]] = {
        "leaf_index": [item.index for item in entries],
        "parents": [
            [{"entry_id": parent.entry_id, "weight_ppm": parent.weight_ppm} for parent in item.entry.parents]
            for item in entries
        ],
        "metadata": [list(item.entry.metadata.items()) for item in entries],
        "key_id": [item.key_id for item in entries],
        "signature": [item.signature for item in entries],
    }
    for name in ("tenant", "entry_id", "principal", "source", "request", "response", "created_at_ms"):
        columns[name] = [getattr(item.entry, name) for item in entries]
    return pa.Table.from_pydict(columns, schema=ENTRY_SCHEMA)


def write_table(table: pa.Table) -> bytes:
    """Return the Parquet file of a table of entries or tombstones."""
    repeating = [name for name in _REPEATING if name in table.schema.names]
    return parquet.write(table, repeating=repeating, rows_per_group=ROWS_PER_GROUP)


def file_parts(table: pa.Table, most_rows: int) -> list[pa.Table]:
    """Cut a table into parts of at most `most_rows` and DATA_FILE_BYTES, each a data file."""
    rows = table.num_rows
    if rows <= most_rows and (rows == 1 or table.nbytes <= DATA_FILE_BYTES):
        return [table] if rows else []
    step = most_rows if rows > most_rows else -(-rows // 2)
    return [part for start in range(0, rows, step) for part in file_parts(table.slice(start, step), step)]


def read_table(  # noqa: PLR0913 - a file, what it must be, and what is wanted of it
    data: bytes,
    where: str,
    columns: list[str] | None = None,
    *,
    schema: pa.Schema = ENTRY_SCHEMA,
    rows: int | None = None,
    part: tuple[int, int] = (0, 1),
) -> pa.Table:
    """Parse a file whose digest has been verified, or some of its columns, or one of n parts of its rows.

    Args:
        data: The file.
        where: Its name, for errors.
        columns: Those wanted; None for all.
        schema: What it must be of: a data file's or a tombstone file's.
        rows: How many the manifest says it has.
        part: Number and count of the part.

    Raises:
        VerificationError: not such a file, or one of another number of rows.
    """
    try:
        table = parquet.read(data, schema, repeating=_REPEATING, rows=rows, columns=columns, part=part)
    except parquet.ParquetError as error:
        raise VerificationError(f"{where}: {error}") from None
    if any(column.null_count for column in table.columns):
        raise VerificationError(f"{where}: null in a column that has none")
    return table


def read_entries(table: pa.Table) -> list[SignedEntry]:
    """Read the rows of a table that passed `memory_audit.snapshot.columns.rows.check_rows_format`."""
    columns = {field.name: table.column(field.name) for field in ENTRY_SCHEMA}
    columns["parents"] = _lists(columns["parents"], lambda parents: tuple(Parent(**parent) for parent in parents))
    columns["metadata"] = _lists(columns["metadata"], lambda items: MappingProxyType(dict(items)))
    plain = {name: column if isinstance(column, list) else column.to_pylist() for name, column in columns.items()}
    fields = zip(*(plain[name] for name in Entry.__slots__), strict=True)
    rest = zip(*(plain[name] for name in ("leaf_index", "key_id", "signature")), strict=True)
    return [
        SignedEntry(entry=Entry.judged(*values), index=index, key_id=key_id, signature=signature)
        for values, (index, key_id, signature) in zip(fields, rest, strict=True)
    ]


def _lists(column: pa.ChunkedArray, made: Callable[[list[Any]], T]) -> list[T]:
    """Return what is made of each row's list; of empty lists, which most are, one for all."""
    if all(chunk.offsets[0].equals(chunk.offsets[-1]) for chunk in column.chunks):
        return [made([])] * len(column)
    return [made(values) for values in column.to_pylist()]


def write_tombstones(tombstones: Sequence[SignedTombstone]) -> bytes:
    """Return the Parquet file of signed tombstones, in the order given."""
    columns: dict[str, list[Any]] = {
        "leaf_index": [item.index for item in tombstones],
        "extra": [list(item.tombstone.extra.items()) for item in tombstones],
        "signatures": [
            [{"key_id": key_id, "signature": signature} for key_id, signature in item.signatures] for item in tombstones
        ],
    }
    for name in TOMBSTONE_SCHEMA.names:
        if name not in columns:
            columns[name] = [getattr(item.tombstone, name) for item in tombstones]
    return write_table(pa.Table.from_pydict(columns, schema=TOMBSTONE_SCHEMA))


def read_tombstones(data: bytes, where: str, rows: int | None = None) -> list[SignedTombstone]:
    """Parse a tombstone file whose digest has been verified; signatures are not verified here.

    Args:
        data: The file.
        where: Its name, for errors.
        rows: How many the manifest says it has.

    Raises:
        VerificationError: not a tombstone file, one of another number of rows, or a row that is not a valid tombstone.
    """
    table = read_table(data, where, schema=TOMBSTONE_SCHEMA, rows=rows)
    result = []
    try:
        for row in table.to_pylist():
            index, signatures, extra = row.pop("leaf_index"), row.pop("signatures"), row.pop("extra")
            result.append(
                SignedTombstone(
                    tombstone=Tombstone(**row, extra=_unique(extra)),
                    index=index,
                    signatures=tuple((item["key_id"], item["signature"]) for item in signatures),
                )
            )
    except (EntryError, UnicodeDecodeError) as error:
        raise VerificationError(f"{where}: {error}") from None
    return result


def _unique(pairs: list[tuple[str, str]]) -> Mapping[str, str]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise EntryError("a metadata key appears twice")
    return result
