"""Reading deterministic CBOR back (`memory_audit.provenance.cbor`), strictly: for tests, vectors and fuzzing.

What it takes is the only encoding of its value. It still encodes the value again and compares, so that a mistake in its
rules cannot let two encodings of one value in.
"""

from __future__ import annotations

import unicodedata

from memory_audit.errors import VerificationError
from memory_audit.provenance.cbor import MAX_DEPTH, Value, encode

__all__ = ["decode"]

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG = range(7)
_SIMPLE: dict[int, Value] = {0xF4: False, 0xF5: True, 0xF6: None}


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
    if encode(value) != data:  # never seen
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
        if short < 24:
            return short
        if short > 27:
            raise self.error("indefinite length or reserved head")
        size = 1 << (short - 24)
        argument = int.from_bytes(self.take(size), "big")
        if argument < 24 or (argument < 1 << (4 * size) and size > 1):
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
