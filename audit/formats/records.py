"""Values from outside as records: msgspec checks types, bounds and members, and what is wrong is told in one line.

A reader decodes first (`memory_audit.formats.outside_json`, `strict_yaml`), which refuses what msgspec would pass over:
a member twice, numbers beyond a float, deep nesting. A record says what it takes by its fields: a `msgspec.Struct` with
`forbid_unknown_fields` where nothing else may be there.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from memory_audit.errors import UsageError
from memory_audit.formats.setting_types import bare_type, describe_type

__all__ = ["convert"]

T = TypeVar("T")

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def convert(value: Any, record: type[T], where: str, *, error: type[UsageError] = UsageError) -> T:
    """Make a record of a decoded value.

    Args:
        value: Of dict, list, str, int, float, bool and None.
        record: A `msgspec.Struct` class, a dataclass or a type of these.
        where: Names the file, and the line, for messages.
        error: What is raised.

    Raises:
        UsageError: of that class; names the place in the value, what was expected and what is there.
    """
    try:
        return msgspec.convert(value, record, strict=True)
    except msgspec.ValidationError as problem:
        raise error(f"{where}: {_in_words(str(problem), value, record)}") from None
    except UsageError as problem:  # of the record's own rules
        raise error(f"{where}: {problem}") from None


def _in_words(problem: str, value: Any, record: Any) -> str:
    text, _, path = problem.rpartition(" - at `$") if " - at `$" in problem else (problem, "", "")
    path, of_mapping, _ = path.removesuffix("`").partition("[...]")
    name = path.removeprefix(".")
    try:
        value, hint = _found(value, record, path)
        if of_mapping or text.endswith("`key` in"):
            return f"{name} is not a mapping of names to {describe_type(get_args(bare_type(hint))[-1])}"
        known = list(get_type_hints(bare_type(hint))) if hasattr(bare_type(hint), "__annotations__") else []
        if text.startswith("Object missing required field"):
            missing = next(field for field in known if f"`{field}`" in text)
            return f"{name}{'.' * bool(name)}{missing} is missing"
        if text.startswith("Object contains unknown field"):
            unknown = min(value.keys() - set(known))
            return f"unknown field {unknown!r:.60}{' of ' * bool(name)}{name}; known are {', '.join(known)}"
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        StopIteration,
    ):  # a field's name that looks like a path of msgspec's
        return f"{problem!r:.160}"
    words = f"an object with {', '.join(known)}" if known else describe_type(hint)
    stated = f"{name} is {value!r:.60}, " if name else ""
    return f"{stated}expected {words}"


def _found(value: Any, hint: Any, path: str) -> tuple[Any, Any]:
    """Follow a path of msgspec's into a value and its type."""
    for name, index in _STEP.findall(path):
        kind = bare_type(hint)
        if name:
            value, hint = value[name], get_type_hints(kind, include_extras=True)[name]
        else:
            kinds = get_args(kind)
            value, hint = value[int(index)], kinds[0 if kinds[-1] in {..., kinds[0]} else int(index)]
    return value, hint
