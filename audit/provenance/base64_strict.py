"""Base 64 (RFC 4648 §4) with one encoding for each value.

`base64.b64decode(validate=True)` accepts `AB==` although the last bits of `B` are not zero: decode, encode, compare.
"""

from __future__ import annotations

import base64
import binascii

from memory_audit.errors import VerificationError

__all__ = ["decode", "encode"]


def encode(data: bytes) -> str:
    """Return the standard, padded form."""
    return base64.b64encode(data).decode("ascii")


def decode(text: str, where: str) -> bytes:
    """Decode the standard, padded form and nothing else.

    Raises:
        VerificationError: names `where`.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise VerificationError(f"{where}: not base64: {text!r:.60}") from None
    if encode(data) != text:
        raise VerificationError(f"{where}: not canonical base64: {text!r:.60}")
    return data
