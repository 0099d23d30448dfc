"""Does a value from outside have the type that a field declares, and what would it have to be, in words?"""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

__all__ = ["bare_type", "describe_type", "fits_type"]

_UNIONS = {Union, types.UnionType}
_WORDS = {float: "a number", int: "a whole number", str: "text", bool: "true or false", types.NoneType: "nothing"}


def fits_type(value: object, hint: Any) -> bool:
    """Tell whether a value fits: a whole number fits a number, true and false fit neither.

    Args:
        value: As a configuration file or a flag gives it.
        hint: What msgspec converts to: plain types, literals, unions, sequences, mappings, bounds in `msgspec.Meta`.
    """
    try:
        msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError:
        return False
    return True


def bare_type(hint: Any) -> Any:
    """Return a type without its bounds and without None."""
    if get_origin(hint) is Annotated:
        return bare_type(get_args(hint)[0])
    if get_origin(hint) in _UNIONS:
        return bare_type(next(option for option in get_args(hint) if option is not types.NoneType))
    return hint


def describe_type(hint: Any) -> str:
    """Say in words what a value would have to be; a description among its bounds is taken as it stands."""
    if get_origin(hint) is Annotated:
        inner, bounds = get_args(hint)
        return bounds.description or f"{describe_type(inner)}{_describe_bounds(bounds)}"
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(option) for option in get_args(hint))
    if get_origin(hint) in _UNIONS:
        return " or ".join(describe_type(option) for option in get_args(hint))
    if get_origin(hint) in {tuple, list, frozenset}:
        return "a list of texts" if bare_type(get_args(hint)[0]) is str else "a list"
    return _WORDS.get(hint, "a mapping") if isinstance(hint, type) else "a mapping"


def _describe_bounds(bounds: msgspec.Meta) -> str:
    if bounds.le is not None:
        return f" from {bounds.ge:,} to {bounds.le:,}"
    if bounds.ge is not None:
        return f" of {bounds.ge:,} or more"
    if bounds.max_length is not None:
        return f", {bounds.min_length or 0} to {bounds.max_length:,}"
    return ", not empty"
