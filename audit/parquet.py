"""Parquet of one schema, as MemAudit writes it: what a file decodes to is known before it is decoded.

Neither compression nor dictionaries have a bound: 87 kB may decode to gigabytes. The sizes in a file's footer are a
claim that no decoder checks. What a page decodes to is in the page's own header, to which the decoder keeps; so `read`
looks at every page header first (`memory_audit.parquet_layout`). A reader MUST refuse, before it decodes anything:

1. another schema or number of rows than expected;
2. compression other than zstd or none, pages that are no version 1 pages of values in plain encoding, and dictionaries
   in columns that are not known to repeat themselves; those stay dictionaries until the length of their texts is known;
3. pages that do not fill their column chunk exactly, or have other numbers of values than its footer says;
4. a file that decodes to more than MAX_EXPANSION times its size, or to more than MAX_DECODED_BYTES. A table that
   compresses better than that is written uncompressed.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memory_audit.entry import MAX_NAME_BYTES
from memory_audit.errors import UsageError
from memory_audit.parquet_layout import DICTIONARY_PAGE, LayoutError, groups_of, pages_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from memory_audit.parquet_layout import Group

__all__ = ["MAX_DECODED_BYTES", "MAX_EXPANSION", "ParquetError", "RowGroups", "read", "write"]

MAX_EXPANSION = 256
"""Times a file's size. Memories that are one text over and over, of 16 kB each, stay below it: each has a signature,
which no compression shortens."""

MAX_DECODED_BYTES = 1 << 31
"""A column of text in Arrow holds as much in one piece."""

VALUE_BYTES = 16
"""What a value takes in memory beside its bytes: offset, levels, validity."""

_CODECS = frozenset({0, 6})
"""None and zstd."""

_PLAIN, _BY_DICTIONARY = 0, frozenset({2, 8})
"""Encodings of a page's values."""


class ParquetError(ValueError):
    """Not a Parquet file as `write` makes it; says why in one line, without the file's name."""


def write(
    table: pa.Table, *, repeating: Sequence[str] = (), rows_per_group: int | Sequence[int] | None = None
) -> bytes:
    """Return the file of a table.

    Statistics are off: minima and maxima of text columns would keep removed text in metadata.

    Args:
        table: Of the readers' schema.
        repeating: Columns of names that come again and again: these are written by dictionary.
        rows_per_group: Rows that can be read apart; of each group, where they differ; None for all in one group.

    Raises:
        UsageError: no reader would take it.
    """
    for compression, by_dictionary in (("zstd", list(repeating)), ("none", [])):
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(
            sink, table.schema, compression=compression, use_dictionary=by_dictionary, write_statistics=False,
            store_schema=False,
        ) as writer:  # fmt: skip
            if rows_per_group is None or isinstance(rows_per_group, int):
                writer.write_table(table, row_group_size=rows_per_group)
            else:
                for start, rows in zip(accumulate(rows_per_group, initial=0), rows_per_group, strict=False):
                    writer.write_table(table.slice(start, rows))
        data = bytes(sink.getvalue())
        decoded = _decoded_bytes(data, groups_of(data), table.schema, repeating)
        if decoded <= _most_decoded(data):
            return data
    raise UsageError(f"{table.num_rows} rows decode to {decoded} bytes, and a reader takes at most {MAX_DECODED_BYTES}")


def read(  # noqa: PLR0913 - a file, its schema, and four named conditions
    data: bytes,
    schema: pa.Schema,
    *,
    repeating: Sequence[str] = (),
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    part: tuple[int, int] = (0, 1),
) -> pa.Table:
    """Return a file's table; its texts are not validated.

    Args:
        data: The file.
        schema: What it must be of; metadata do not count.
        repeating: As in `write`: columns of texts of at most MAX_NAME_BYTES.
        rows: How many it must have; None for any number.
        columns: Those wanted; None for all.
        part: Number and count: one of n parts of its row groups.

    Raises:
        ParquetError: a rule of the module's docstring is broken, or it cannot be decoded.
    """
    file, (number, parts) = RowGroups(data, schema, repeating=repeating, rows=rows), part
    return file.read(range(len(file) * number // parts, len(file) * (number + 1) // parts), columns)


class RowGroups:
    """The row groups of a file, to be read apart: the footer is read once. Arguments and errors as of `read`."""

    def __init__(
        self, data: bytes, schema: pa.Schema, *, repeating: Sequence[str] = (), rows: int | None = None
    ) -> None:
        self._data, self._schema = data, schema
        self._repeating = [name for name in repeating if name in schema.names]
        with _told_in_one_line():
            self._groups = groups_of(data)
            if rows is not None and (stated := sum(group.rows for group in self._groups)) != rows:
                raise ParquetError(f"{stated} rows, expected {rows}")
            file = pq.ParquetFile(pa.BufferReader(data))
            if not file.schema_arrow.equals(schema):
                raise ParquetError(f"columns are not those of the format: {file.schema_arrow.names!r:.120}")
            self._file = pq.ParquetFile(
                pa.BufferReader(data), metadata=file.metadata, read_dictionary=self._repeating
            )  # fmt: skip

    def __len__(self) -> int:
        return len(self._groups)

    def read(self, wanted: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Return the table of some row groups, by number."""
        with _told_in_one_line():
            groups = [self._groups[place] for place in wanted]
            decoded = _decoded_bytes(self._data, groups, self._schema, self._repeating)
            if decoded > (most := _most_decoded(self._data)):
                raise ParquetError(f"{len(self._data)} bytes that decode to {decoded}, at most {most} are allowed")
            table = self._file.read_row_groups(list(wanted), columns=columns, use_threads=False)
            return _without_dictionaries(table, self._schema, self._repeating)


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    try:
        yield
    except ParquetError:
        raise
    except LayoutError as error:
        raise ParquetError(f"not Parquet as it is written here: {error}") from None
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise ParquetError(f"not Parquet ({' '.join(str(error).split())[:80]})") from None


def _most_decoded(data: bytes) -> int:
    return min(MAX_EXPANSION * len(data), MAX_DECODED_BYTES)


def _decoded_bytes(data: bytes, groups: Sequence[Group], schema: pa.Schema, repeating: Collection[str]) -> int:
    """Return what row groups decode to, by their page headers, at most.

    A name that comes by dictionary is counted at its limit: how long it is only the dictionary says.

    Raises:
        ParquetError, LayoutError: they are not written as they must be.
    """
    names = [field.name for field in schema for _ in range(_leaves(field.type))]
    decoded = 0
    for group in groups:
        if len(group.chunks) != len(names):
            raise ParquetError(f"{len(group.chunks)} columns, expected {len(names)}")
        for name, chunk in zip(names, group.chunks, strict=True):
            if chunk.codec not in _CODECS or chunk.values < group.rows:
                raise ParquetError(f"{name} is compressed by codec {chunk.codec}, or has too few values")
            for page in pages_of(data, chunk):
                by_dictionary = page.encoding in _BY_DICTIONARY
                if (page.kind == DICTIONARY_PAGE or by_dictionary) and name not in repeating:
                    raise ParquetError(f"{name} is written by dictionary")
                if page.encoding != _PLAIN and not by_dictionary:
                    raise ParquetError(f"{name} has encoding {page.encoding}, expected plain")
                # Without a codec a page is read in its compressed size.
                size = max(page.uncompressed, page.compressed)
                decoded += size + page.values * (VALUE_BYTES + by_dictionary * MAX_NAME_BYTES)
    return decoded


def _leaves(kind: pa.DataType) -> int:
    """Count the columns of a file that a column of a table is made of."""
    if kind.num_fields == 0:
        return 1
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))


def _without_dictionaries(table: pa.Table, schema: pa.Schema, repeating: Collection[str]) -> pa.Table:
    """Put texts in the place of dictionaries: what is left of a dictionary would keep removed texts alive."""
    for number, name in enumerate(table.schema.names):
        if name not in repeating:
            continue
        column = table.column(number)
        for chunk in column.chunks:
            chunk.validate(full=True)  # read so, nobody has looked whether each index is one of the dictionary's
            longest = pc.max(pc.binary_length(chunk.dictionary)).as_py()
            if longest is not None and longest > MAX_NAME_BYTES:
                raise ParquetError(f"{name} of {longest} bytes, at most {MAX_NAME_BYTES} are allowed")
        field = schema.field(name)
        table = table.set_column(number, field, column.cast(field.type))
    return table
