"""Deterministic CBOR (RFC 8949 §4.2.1), the subset that signed leaves are made of.

Encoded: whole numbers from -2^64 to 2^64 - 1, byte strings, NFC text, arrays, maps with text keys, false, true, null.
Never: floats, tags (so no bignums, dates, regular expressions), undefined, other simple values, indefinite lengths.

A decoder MUST reject, and this one does: an argument that is not in its shortest form, map keys that are not in
bytewise order or appear twice, text that is not UTF-8 or not NFC, nesting beyond MAX_DEPTH, an input longer than its
limit (before reading it), and trailing bytes. What it accepts is the only encoding of its value; `decode` still
encodes the value again and compares, so that a mistake in the rules above cannot let two encodings of one value in.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache

from memory_audit.errors import VerificationError

__all__ = [
    "MAX_DEPTH",
    "Value",
    "decode",
    "encode",
    "encode_array",
    "encode_map",
    "encode_number",
    "encode_text",
    "text_head",
]

Value = int | bytes | str | bool | None | list["Value"] | tuple["Value", ...] | Mapping[str, "Value"]

MAX_DEPTH = 8
"""Deeper than any leaf, far from Python's recursion limit."""

_MAX_ARGUMENT = (1 << 64) - 1
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG = range(7)
_SIMPLE: dict[int, Value] = {0xF4: False, 0xF5: True, 0xF6: None}


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


def decode(data: bytes, *, max_bytes: int, where: str) -> Value:
    """Decode exactly one value.

    Args:
        data: The whole encoding, nothing before or after it.
        max_bytes: Refuse longer input before looking at it.
        where: What is being read, for error messages.

    Raises:
        VerificationError: names `where`, the byte and the rule broken.
    """
    if len(data) > max_bytes:
        raise VerificationError(f"{where}: {len(data)} bytes of CBOR, at most {max_bytes} are allowed")
    reader = _Reader(data, where)
    value = reader.value(MAX_DEPTH)
    if reader.position != len(data):
        raise reader.error(f"{len(data) - reader.position} trailing bytes")
    if encode(value) != data:  # never seen; see the module docstring
        raise VerificationError(f"{where}: not the deterministic encoding of its value")
    return value


class _Reader:
    """Position in the input, and the rules."""

    __slots__ = ("data", "position", "where")

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.where = where
        self.position = 0

    def error(self, problem: str) -> VerificationError:
        return VerificationError(f"{self.where}: {problem} at byte {self.position} of deterministic CBOR")

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.position:
            raise self.error(f"{size} bytes announced, {len(self.data) - self.position} left")
        start, self.position = self.position, self.position + size
        return self.data[start : self.position]

    def value(self, depth: int) -> Value:
        initial = self.take(1)[0]
        major = initial >> 5
        if major == _TAG:
            raise self.error("tags are not allowed")
        if major > _TAG:
            if initial in _SIMPLE:
                return _SIMPLE[initial]
            raise self.error("floats and simple values other than false, true and null are not allowed")
        argument = self._argument(initial & 0x1F)
        if major == _UNSIGNED:
            return argument
        if major == _NEGATIVE:
            return -1 - argument
        if major == _BYTES:
            return self.take(argument)
        if major == _TEXT:
            return self._text(argument)
        if depth == 0:
            raise self.error(f"nesting deeper than {MAX_DEPTH}")
        if argument > len(self.data) - self.position:  # each item takes a byte at least: refuse before looping
            raise self.error(f"{argument} items announced, {len(self.data) - self.position} bytes left")
        if major == _ARRAY:
            return [self.value(depth - 1) for _ in range(argument)]
        return self._map(argument, depth)

    def _argument(self, short: int) -> int:
        if short < 24:  # noqa: PLR2004
            return short
        if short > 27:  # noqa: PLR2004
            raise self.error("indefinite length or reserved head")
        size = 1 << (short - 24)
        argument = int.from_bytes(self.take(size), "big")
        if argument < 24 or (argument < 1 << (4 * size) and size > 1):  # noqa: PLR2004
            raise self.error("number not in its shortest form")
        return argument

    def _text(self, size: int) -> str:
        raw = self.take(size)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise self.error("text that is not UTF-8") from None
        if not text.isascii() and not unicodedata.is_normalized("NFC", text):
            raise self.error("text not in Unicode normal form NFC")
        return text

    def _map(self, size: int, depth: int) -> dict[str, Value]:
        result: dict[str, Value] = {}
        previous = b""
        for _ in range(size):
            start = self.position
            key = self.value(0)
            if not isinstance(key, str):
                raise self.error("map key that is not text")
            encoded = self.data[start : self.position]
            if encoded <= previous:
                raise self.error(f"map key {key!r:.40} twice or out of order")
            previous = encoded
            result[key] = self.value(depth - 1)
        return result
