"""Does a value from a configuration have the type that a setting declares?"""

from __future__ import annotations

import types
from typing import Literal, get_args, get_origin

__all__ = ["describe_type", "fits_type"]

_WORDS = {float: "a number", int: "a whole number", str: "text", types.NoneType: "nothing"}


def fits_type(value: object, hint: object) -> bool:
    """Tell whether a value fits: a whole number fits a number, true and false fit neither, mappings fit the rest.

    Args:
        value: As a configuration file or a flag gives it; a list of texts comes as a tuple.
        hint: `int`, `float`, `str`, `None`, a tuple of texts, a literal, or a union of these.
    """
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(hint, types.UnionType):
        return any(fits_type(value, option) for option in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint in {int, str, types.NoneType}:
        return isinstance(value, hint) and not isinstance(value, bool)
    return isinstance(value, dict)


def describe_type(hint: object) -> str:
    """Say in words what a value would have to be."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(option) for option in get_args(hint))
    if isinstance(hint, types.UnionType):
        return " or ".join(describe_type(option) for option in get_args(hint))
    if get_origin(hint) is tuple:
        return "a list of texts"
    return _WORDS.get(hint, "a mapping") if isinstance(hint, type) else "a mapping"
