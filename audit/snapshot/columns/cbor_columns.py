"""Deterministic CBOR of whole columns: what `memory_audit.provenance.cbor` writes for one value, for many rows at once.

Every function returns an Arrow array of bytes with one element per row, and `join` glues such arrays row by row. Only
what the leaves of entries hold is here: whole numbers from 0 to 2^64 - 1, texts, and the heads of arrays and maps.
Values are not checked: `memory_audit.snapshot.columns.rows` has done that.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_audit.provenance.cbor import encode_text as one_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ARRAY", "MAP", "heads", "join", "numbers", "one_text", "regroup", "split", "texts"]

UNSIGNED, TEXT, ARRAY, MAP = 0, 3, 4, 5
"""Major types (RFC 8949 §3.1)."""

_LONGEST_HEAD = 9
"""An initial byte and an argument of 8."""


def heads(major: int, arguments: NDArray[np.uint64]) -> pa.LargeBinaryArray:
    """Initial byte and argument of each row, in its shortest form.

    Args:
        major: Major type.
        arguments: (rows,) unsigned.
    """
    count = len(arguments)
    steps = np.array([24, 1 << 8, 1 << 16, 1 << 32], np.uint64)
    classes = np.searchsorted(steps, arguments, side="right")
    widths = np.array([0, 1, 2, 4, 8])[classes]  # bytes of the argument after the initial byte
    first = np.where(classes == 0, arguments, 23 + classes).astype(np.uint8) | np.uint8(major << 5)
    raw = np.empty((count, _LONGEST_HEAD), np.uint8)  # right-aligned
    raw[:, 1:] = arguments.astype(">u8").view(np.uint8).reshape(count, 8)
    raw[np.arange(count), 8 - widths] = first
    if count and widths.min() == widths.max():
        data = np.ascontiguousarray(raw[:, 8 - widths[0] :])
    else:
        data = raw[np.arange(_LONGEST_HEAD) >= (8 - widths)[:, None]]
    return _array(np.concatenate(([0], np.cumsum(widths + 1))), pa.py_buffer(data))


def numbers(column: pa.Array) -> pa.LargeBinaryArray:
    """Whole numbers, none negative and none null."""
    return heads(UNSIGNED, column.to_numpy(zero_copy_only=False).astype(np.uint64))


def texts(column: pa.StringArray) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """Return the heads of texts, and their UTF-8."""
    sizes = pc.binary_length(column).to_numpy(zero_copy_only=False)
    return heads(TEXT, sizes.astype(np.uint64)), column.cast(pa.large_string()).cast(pa.large_binary())


def join(*columns: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Glue columns together, row by row."""
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def regroup(items: pa.LargeBinaryArray, counts: NDArray[np.uint64]) -> pa.LargeBinaryArray:
    """Glue each row's items together: the first row has the first `counts[0]`, and so on.

    The items of a row lie side by side already, so nothing is copied.
    """
    ends = np.concatenate(([0], np.cumsum(counts.astype(np.int64))))
    _, offsets, data = items.buffers()
    return _array(np.frombuffer(offsets, np.int64)[items.offset + ends], data)


def split(column: pa.LargeBinaryArray) -> list[bytes]:
    """Return the elements."""
    _, offsets, data = column.buffers()
    whole = b"" if data is None else data.to_pybytes()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1].tolist()
    return [whole[start:end] for start, end in pairwise(ends)]


def _array(offsets: NDArray[np.int64], data: pa.Buffer | None) -> pa.LargeBinaryArray:
    offsets = np.ascontiguousarray(offsets, np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data or pa.py_buffer(b"")]
    )
