"""Calibrations: what was fitted to turn a reader's numbers into decisions, one JSON file beside its weights.

`data/NAME.json` is an object of records; a record has the fields of its dataclass. Whatever is missing, unknown, no
number or not finite is refused.
"""

from __future__ import annotations

import math
from dataclasses import fields
from importlib.resources import files
from typing import Any, TypeVar

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json

__all__ = ["read_calibration", "read_record", "record_of"]

T = TypeVar("T")


def read_calibration(name: str, /, **kinds: type) -> tuple[Any, ...]:
    """Read a packaged calibration.

    Args:
        name: Of the file in `data/`.
        kinds: The dataclass of each record, by its name; `str` for a text.

    Returns:
        The records, in the order of `kinds`.

    Raises:
        UsageError: the file is not there, or has other records than these.
    """
    found = read_record(name)
    if found.keys() != kinds.keys():
        raise UsageError(f"{name}: holds {', '.join(found):.80}, expected {', '.join(kinds)}")
    texts = [part for part, kind in kinds.items() if kind is str]
    if not all(isinstance(found[part], str) for part in texts):
        raise UsageError(f"{name}: {', '.join(texts)}: not text")
    return tuple(
        found[part] if kind is str else record_of(kind, found[part], f"{name}: {part}") for part, kind in kinds.items()
    )


def read_record(name: str) -> dict[str, Any]:
    """Return the JSON object in a file of `data/`.

    Raises:
        UsageError: the file is not there, or holds none.
    """
    try:
        found = outside_json.decode(files("memory_audit.models").joinpath("data", name).read_bytes(), name)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}; install MemAudit again") from None
    if not isinstance(found, dict):
        raise UsageError(f"{name}: not a JSON object")
    return found


def record_of(kind: type[T], value: object, where: str) -> T:
    """Return a dataclass of numbers, texts, or lists of these, from a JSON object of its fields.

    Raises:
        UsageError: a field is missing, unknown, of another type, or no finite number.
    """
    if not isinstance(value, dict):
        raise UsageError(f"{where}: not a JSON object")
    try:
        found = kind(**{name: tuple(item) if isinstance(item, list) else item for name, item in value.items()})
    except TypeError as error:
        raise UsageError(f"{where}: {error!s:.120}") from None
    for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
        item = value.get(field.name, [])
        many, texts = "tuple" in str(field.type), "str" in str(field.type)
        items = item if isinstance(item, list) else [item]
        if many != isinstance(item, list) and field.name in value:
            raise UsageError(f"{where}: {field.name!r} is {item!r:.40}")
        if not all(isinstance(one, str) if texts else _is_number(one) for one in items):
            raise UsageError(f"{where}: {field.name!r} is {item!r:.40}, expected {'text' if texts else 'numbers'}")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)
