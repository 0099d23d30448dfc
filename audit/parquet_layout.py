"""Where the pages of a Parquet file are, and how large: its footer and page headers, read strictly.

Both are Thrift structures in its compact protocol (parquet.thrift). Decoders pass over what they do not expect; here
all that two of them could read in two ways is refused: a field that is unknown, twice or of another type, a list of
other elements, a number of more bits. pyarrow tells no page headers, and ends the process at a footer that is damaged
in some places.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Chunk", "Group", "LayoutError", "Page", "groups_of", "pages_of"]

MAX_FOOTER_BYTES = 4 << 20
"""Of a million rows in groups of 2,048 the footer has a megabyte; read it takes many times its size."""

DATA_PAGE, DICTIONARY_PAGE = 0, 2
"""Kinds of pages that are read."""

TRAILER = b"PAR1"
TRAILER_BYTES = 8
"""The length of the footer, and the trailer."""

_BOOL, _BYTE, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 3, 4, 5, 6, 8, 9, 12
_BOOLS = frozenset({1, 2})
_CODES: dict[Any, int] = {dict: _STRUCT, list: _LIST}
_BITS = {_I16: 16, _I32: 32, _I64: 64}
_VARINT_BITS = 70
"""Of the longest number: ten bytes of seven bits each."""

_MORE = 128
"""The bit of a byte that says that more follow."""

_KEY_VALUE = {1: _BINARY, 2: _BINARY}
_STATISTICS = {1: _BINARY, 2: _BINARY, 3: _I64, 4: _I64, 5: _BINARY, 6: _BINARY, 7: _BOOL, 8: _BOOL}
_TYPE: dict[int, Any] = {1: {}, 2: {}, 3: {}, 10: {1: _BYTE, 2: _BOOL}}
"""Text, map, list and whole number: what our schemas are made of."""

_ELEMENT = {1: _I32, 2: _I32, 3: _I32, 4: _BINARY, 5: _I32, 6: _I32, 7: _I32, 8: _I32, 9: _I32, 10: _TYPE}
_COLUMN = {
    1: _I32, 2: [_I32], 3: [_BINARY], 4: _I32, 5: _I64, 6: _I64, 7: _I64, 8: [_KEY_VALUE], 9: _I64, 10: _I64, 11: _I64,
    12: _STATISTICS, 13: [{1: _I32, 2: _I32, 3: _I32}], 16: {1: _I64, 2: [_I64], 3: [_I64]},
}  # fmt: skip
_CHUNK = {2: _I64, 3: _COLUMN, 4: _I64, 5: _I32, 6: _I64, 7: _I32}
_GROUP = {1: [_CHUNK], 2: _I64, 3: _I64, 5: _I64, 6: _I64, 7: _I16}
_FOOTER = {1: _I32, 2: [_ELEMENT], 3: _I64, 4: [_GROUP], 5: [_KEY_VALUE], 6: _BINARY, 7: [{1: {}}]}
_PAGE = {
    1: _I32, 2: _I32, 3: _I32, 4: _I32, 5: {1: _I32, 2: _I32, 3: _I32, 4: _I32, 5: _STATISTICS},
    7: {1: _I32, 2: _I32, 3: _BOOL},
}  # fmt: skip
"""Number of a field to its type: a code, a structure's fields, or a list with the type of its elements."""


class LayoutError(ValueError):
    """A footer or page header that is not as it must be; says why in one line, without the file's name."""


class Chunk(NamedTuple):
    """One column of one row group."""

    codec: int
    values: int
    """As the footer says: of a list each element counts, and an empty one as one."""

    start: int
    """Byte offset of the first page that a decoder reads."""

    size: int
    """Bytes."""


class Group(NamedTuple):
    """One row group."""

    rows: int
    chunks: list[Chunk]


class Page(NamedTuple):
    """A page header. Sizes in bytes."""

    kind: int
    uncompressed: int
    compressed: int
    values: int
    encoding: int


def groups_of(data: bytes) -> list[Group]:
    """Read the row groups of a file out of its footer.

    Raises:
        LayoutError: no footer, or not one that all decoders read alike.
    """
    size = int.from_bytes(data[-TRAILER_BYTES : -len(TRAILER)], "little")
    start = len(data) - TRAILER_BYTES - size
    if not data.endswith(TRAILER) or size > MAX_FOOTER_BYTES or start < 0:
        raise LayoutError("no footer, or one that is too large")
    footer, end = _read(data[start:-TRAILER_BYTES], 0, _FOOTER)
    if end != size:
        raise LayoutError("a footer that is longer than it says")
    return [
        Group(rows=_size(group, 3), chunks=[_chunk(chunk.get(3, {})) for chunk in group.get(1, [])])
        for group in footer.get(4, [])
    ]


def _chunk(column: dict[int, Any]) -> Chunk:
    start, dictionary = _size(column, 9), column.get(11, 0)
    return Chunk(
        codec=_size(column, 4), values=_size(column, 5), start=dictionary if 0 < dictionary < start else start,
        size=_size(column, 7),
    )  # fmt: skip


def pages_of(data: bytes, chunk: Chunk) -> list[Page]:
    """Read the page headers of a column chunk, from where a decoder starts to where it stops.

    Raises:
        LayoutError: pages that do not fill the chunk, have other numbers of values, or are of another kind.
    """
    if not chunk.values:  # no decoder starts there
        return []
    at, end = chunk.start, chunk.start + chunk.size
    if end > len(data):
        raise LayoutError("pages that lie outside the file")
    pages = []
    while at < end:
        header, at = _read(data, at, _PAGE)
        kind = _size(header, 1)
        body = header.get({DATA_PAGE: 5, DICTIONARY_PAGE: 7}.get(kind, 0))
        if body is None or len(header.keys() & {5, 7}) > 1:
            raise LayoutError(f"a page of kind {kind}, or not of the form of its kind")
        page = Page(kind, _size(header, 2), _size(header, 3), _size(body, 1), _size(body, 2))
        pages.append(page)
        at += page.compressed
    if at != end or sum(page.values for page in pages if page.kind == DATA_PAGE) != chunk.values:
        raise LayoutError("pages of another size or number of values than the footer says")
    return pages


def _size(fields: dict[int, Any], number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int) or value < 0:
        raise LayoutError("a size that is missing, or below 0")
    return value


def _read(data: bytes, at: int, known: dict[int, Any]) -> tuple[dict[int, Any], int]:
    """Read one structure: its fields by their numbers, and where it ends."""
    try:
        return _struct(data, at, known)
    except IndexError:
        raise LayoutError("a footer or page header that ends beyond its place") from None


def _struct(data: bytes, at: int, known: dict[int, Any]) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        step, kind = head >> 4, head & 15
        number += step
        expected = known.get(number)
        if not step or expected is None:  # a field's number in full may name one that was there
            raise LayoutError(f"a field {number} that is unknown or out of order")
        if expected == _BOOL and kind in _BOOLS:
            fields[number] = kind == _BOOL
        elif kind == _code(expected) and expected != _BOOL:
            fields[number], at = _value(data, at, expected)
        else:
            raise LayoutError(f"a field {number} of type {kind}")
    return fields, at + 1


def _value(data: bytes, at: int, expected: Any) -> tuple[Any, int]:
    """Read one value that is no bool, of a type that was checked."""
    if isinstance(expected, dict):
        return _struct(data, at, expected)
    if isinstance(expected, list):
        return _list(data, at, expected[0])
    if expected == _BYTE:
        return data[at], at + 1
    coded, at = _varint(data, at)
    if expected == _BINARY:
        if coded > len(data) - at:
            raise LayoutError("a text that ends beyond its place")
        return data[at : at + coded], at + coded
    if coded >> _BITS[expected]:
        raise LayoutError("a number of too many bits")
    return (coded >> 1) ^ -(coded & 1), at


def _list(data: bytes, at: int, element: Any) -> tuple[list[Any], int]:
    count, kind = data[at] >> 4, data[at] & 15
    at += 1
    if count == 15:  # noqa: PLR2004 - four bits do not hold it
        count, at = _varint(data, at)
    if count and kind != _code(element):
        raise LayoutError(f"a list of elements of type {kind}")
    values = []
    for _ in range(count):  # each takes a byte at least, so that the data end first
        value, at = _value(data, at, element)
        values.append(value)
    return values, at


def _code(expected: Any) -> int:
    return _CODES[type(expected)] if isinstance(expected, dict | list) else int(expected)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < _MORE:
        return value, at + 1
    value -= _MORE
    for shift in range(7, _VARINT_BITS, 7):
        at += 1
        byte = data[at]
        value |= (byte & (_MORE - 1)) << shift
        if byte < _MORE:
            return value, at + 1
    raise LayoutError("a number that does not end")
