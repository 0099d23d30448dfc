"""JSON with one encoding for each value: sorted keys, no white space, UTF-8, whole numbers only (close to RFC 8785).

Signed payloads, policies and pins are written in this form, and read back strictly: decode, encode, compare bytes.
Refused: floats, NaN, repeated keys, lone surrogates, deep nesting, anything longer than its limit (before parsing),
and any other spelling of an accepted value. `Fields` reads the members of an object, each exactly once.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from memory_audit.entry import MAX_NAME_BYTES
from memory_audit.errors import VerificationError

__all__ = ["Fields", "decode", "encode"]

_HEX = re.compile(r"(?:[0-9a-f]{2})*", re.ASCII)


def encode(value: Any) -> bytes:
    """Return the one encoding of a value made of dict, list, str, int, bool and None.

    Raises:
        TypeError: a float or another type.
    """
    _refuse_floats(value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decode(data: bytes, *, max_bytes: int, where: str) -> Any:
    """Read a value back from its one encoding.

    Raises:
        VerificationError: names `where`.
    """
    if len(data) > max_bytes:
        raise VerificationError(f"{where}: {len(data)} bytes of JSON, at most {max_bytes} are allowed")
    try:
        value = json.loads(data.decode(), parse_float=_refuse, parse_constant=_refuse)
        again = encode(value)
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"{where}: not canonical JSON ({str(error)[:80]})") from None
    if again != data:
        raise VerificationError(f"{where}: not canonical JSON (a repeated key, white space or another spelling)")
    return value


class Fields:
    """The members of one JSON object: each is taken once with its type and limit, and `done` refuses the rest."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise VerificationError(f"{where}: expected an object, got {type(value).__name__}")
        self._left: dict[str, Any] = dict(value)
        self.where = where

    def take(self, name: str) -> Any:
        """Take a member as it is.

        Raises:
            VerificationError: there is none of that name; so do all methods below, and for a wrong type or size.
        """
        if name not in self._left:
            raise VerificationError(f"{self.where}: no {name!r}")
        return self._left.pop(name)

    def text(self, name: str, max_bytes: int = MAX_NAME_BYTES, *, may_be_empty: bool = False) -> str:
        """Take text of at most `max_bytes` UTF-8 bytes."""
        value = self.take(name)
        if not isinstance(value, str) or len(value.encode()) > max_bytes or not (value or may_be_empty):
            raise VerificationError(f"{self.where}: {name!r} is {value!r:.60}, expected text of 1 to {max_bytes} bytes")
        return value

    def whole(self, name: str, maximum: int, minimum: int = 0) -> int:
        """Take a whole number from `minimum` to `maximum`."""
        value = self.take(name)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise VerificationError(f"{self.where}: {name!r} is {value!r:.60}, expected {minimum} to {maximum}")
        return value

    def whole_or_none(self, name: str, maximum: int) -> int | None:
        """Take a whole number from 0 to `maximum`, or null."""
        return None if self.is_null(name) else self.whole(name, maximum)

    def is_null(self, name: str) -> bool:
        """Tell whether a member is there and null; it is taken then."""
        null = name in self._left and self._left[name] is None
        if null:
            del self._left[name]
        return null

    def has(self, name: str) -> bool:
        """Tell whether a member is there and not taken yet."""
        return name in self._left

    def hex_bytes(self, name: str, size: int) -> bytes:
        """Take `size` bytes written in lower-case hex."""
        value = self.take(name)
        if not isinstance(value, str) or len(value) != 2 * size or not _HEX.fullmatch(value):
            raise VerificationError(f"{self.where}: {name!r} is {value!r:.60}, expected {2 * size} hex digits")
        return bytes.fromhex(value)

    def texts(self, name: str, max_items: int, max_bytes: int = MAX_NAME_BYTES) -> dict[str, str]:
        """Take an object of texts."""
        value = self.take(name)
        if (
            not isinstance(value, dict)
            or len(value) > max_items
            or not all(isinstance(item, str) and len(item.encode()) <= max_bytes for item in value.values())
        ):
            raise VerificationError(f"{self.where}: {name!r} must be at most {max_items} texts of {max_bytes} bytes")
        return value

    def object(self, name: str) -> Fields:
        """Take an object."""
        return Fields(self.take(name), f"{self.where}: {name}")

    def expect_format(self, name: str) -> None:
        """Take the member `format`, which must be this one."""
        if self.text("format") != name:
            raise VerificationError(f"{self.where}: not a {name}")

    def objects(self, name: str, max_items: int) -> list[Fields]:
        """Take a list of objects."""
        value = self.take(name)
        if not isinstance(value, list) or len(value) > max_items:
            raise VerificationError(f"{self.where}: {name!r} must be a list of at most {max_items} objects")
        return [Fields(item, f"{self.where}: {name}[{number}]") for number, item in enumerate(value)]

    def done(self) -> None:
        """Refuse members that nobody took."""
        if self._left:
            raise VerificationError(f"{self.where}: unknown member {min(self._left)!r:.60}")


def _refuse_floats(value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"object key is {type(key).__name__}, expected text")
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)
    elif value is not None and not isinstance(value, str | int):
        raise TypeError(f"cannot encode {type(value).__name__} as canonical JSON")


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a whole number")
