"""Deterministic CBOR (RFC 8949 §4.2.1), the subset that signed leaves are made of.

Encoded: whole numbers from -2^64 to 2^64 - 1, byte strings, NFC text, arrays, maps with text keys, false, true, null.
Never: floats, tags (so no bignums, dates, regular expressions), undefined, other simple values, indefinite lengths.

Nothing is decoded here: leaves follow from a store's columns, and are encoded again to be compared. A decoder MUST
reject an argument that is not in its shortest form, map keys out of bytewise order or twice, text that is not UTF-8 or
not NFC, nesting beyond MAX_DEPTH, an input longer than its limit (before reading it), and trailing bytes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache

__all__ = ["MAX_DEPTH", "Value", "encode", "encode_array", "encode_map", "encode_number", "encode_text", "text_head"]

Value = int | bytes | str | bool | None | list["Value"] | tuple["Value", ...] | Mapping[str, "Value"]

MAX_DEPTH = 8
"""Deeper than any leaf, far from Python's recursion limit."""

_MAX_ARGUMENT = (1 << 64) - 1
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP = range(6)


def encode(value: Value) -> bytes:
    """Encode one value.

    Raises:
        TypeError: a type outside the subset (a float, a map key that is not text).
        ValueError: a number beyond 64 bits, text that is not NFC or holds a lone surrogate, nesting beyond MAX_DEPTH.
    """
    parts: list[bytes] = []
    _encode_into(parts, value, MAX_DEPTH)
    return b"".join(parts)


def _encode_into(parts: list[bytes], value: Value, depth: int) -> None:
    if isinstance(value, str):
        parts.append(encode_text(value))
    elif isinstance(value, bool) or value is None:
        parts.append(b"\xf6" if value is None else b"\xf5" if value else b"\xf4")
    elif isinstance(value, int):
        parts.append(_head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value))
    elif isinstance(value, bytes):
        parts.append(_head(_BYTES, len(value)))
        parts.append(value)
    elif depth == 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    elif isinstance(value, list | tuple):
        parts.append(_head(_ARRAY, len(value)))
        for item in value:
            _encode_into(parts, item, depth - 1)
    elif isinstance(value, Mapping):
        parts.append(_head(_MAP, len(value)))
        for key, item in (
            sorted((encode_text(key), item) for key, item in value.items())
            if len(value) > 1
            else ((encode_text(key), item) for key, item in value.items())
        ):
            parts.append(key)
            _encode_into(parts, item, depth - 1)
    else:
        raise TypeError(f"cannot encode {type(value).__name__}: only int, bytes, str, bool, None, list and dict")


def encode_text(value: str) -> bytes:
    """Encode one text: `encode` for callers that know the type and encode many."""
    if not isinstance(value, str):
        raise TypeError(f"map key is {type(value).__name__}, expected text")
    if not value.isascii() and not unicodedata.is_normalized("NFC", value):
        raise ValueError("text is not in Unicode normal form NFC")
    raw = value.encode()
    return _head(_TEXT, len(raw)) + raw


def encode_array(items: Sequence[bytes]) -> bytes:
    """Return the array of items that are encoded already."""
    return _head(_ARRAY, len(items)) + b"".join(items)


def encode_map(items: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the map of keys and values that are encoded already, in the order of the encoded keys."""
    return _head(_MAP, len(items)) + b"".join(key + value for key, value in sorted(items))


@lru_cache(maxsize=1 << 16)
def text_head(size: int) -> bytes:
    """Return what stands before `size` bytes of UTF-8, for callers that have checked the text."""
    return _head(_TEXT, size)


def encode_number(value: int) -> bytes:
    """Encode one whole number from 0 to 2^64 - 1, like `encode_text`."""
    return _head(_UNSIGNED, value)


def _head(major: int, argument: int) -> bytes:
    """Return the initial byte and the argument in its shortest form."""
    if argument < 24:  # noqa: PLR2004 - RFC 8949 §3: 24 … 27 announce 1, 2, 4 or 8 more bytes
        return bytes((major << 5 | argument,))
    if argument <= 0xFF:  # noqa: PLR2004
        return bytes((major << 5 | 24, argument))
    if argument <= 0xFFFF:  # noqa: PLR2004
        return bytes((major << 5 | 25,)) + argument.to_bytes(2, "big")
    if argument <= 0xFFFF_FFFF:  # noqa: PLR2004
        return bytes((major << 5 | 26,)) + argument.to_bytes(4, "big")
    if argument <= _MAX_ARGUMENT:
        return bytes((major << 5 | 27,)) + argument.to_bytes(8, "big")
    raise ValueError(f"number needs {argument.bit_length()} bits, at most 64 are allowed")
