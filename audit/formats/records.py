"""Decoded JSON or YAML as records: every member of its type and no other, or one line that says where and why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_NAMES", "Name", "as_members", "as_record"]

MAX_NAMES = 10_000
"""Members of one mapping, and texts of one list."""

Name = Annotated[str, msgspec.Meta(min_length=1)]
"""A text that is not empty."""

Record = TypeVar("Record")


def as_record(value: Any, kind: type[Record], where: str, custom: Callable[[type, Any], Any] | None = None) -> Record:
    """Return a decoded value as a record.

    Args:
        value: Of lists, mappings, texts and numbers.
        kind: A `msgspec.Struct` that forbids unknown fields; a dataclass lets them pass.
        where: Names the file and the place in it, for messages.
        custom: Makes values of types that JSON has not; it raises ValueError.

    Raises:
        UsageError: names `where`, the member and the rule broken.
    """
    try:
        return msgspec.convert(value, kind, dec_hook=custom)
    except msgspec.ValidationError as error:
        broken, _, place = str(error).partition(" - at `$")
        place = place.strip("`.")
        words = _words(get_type_hints(kind).get(place.partition("[")[0])) if broken.startswith("Invalid enum") else ()
        expected = f", expected one of {', '.join(words)}" if words else ""
        raise UsageError(f"{where}: {place + ': ' if place else ''}{broken:.200}{expected}") from None


def as_members(value: Any, where: str) -> dict[str, Any]:
    """Return a mapping that people wrote: its members all say something, and its lists say it once.

    Raises:
        UsageError: names `where` and the rule broken.
    """
    if not isinstance(value, Mapping) or len(value) > MAX_NAMES:
        raise UsageError(f"{where}: expected a mapping of at most {MAX_NAMES} names to values")
    for name, item in value.items():
        if item is None:  # a line that was left unfinished must not stand for the default
            raise UsageError(f"{where}: {name!s:.60} has no value")
        if isinstance(item, list) and (len(item) > MAX_NAMES or len(set(map(str, item))) != len(item)):
            raise UsageError(f"{where}: {name!s:.60} must be a list of at most {MAX_NAMES} different texts")
    return dict(value)


def _words(hint: Any) -> list[str]:
    """Return the texts of all literals in a type."""
    return [word for option in get_args(hint) for word in ([option] if isinstance(option, str) else _words(option))]
