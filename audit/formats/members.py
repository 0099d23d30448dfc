"""Mappings that people write, before they are made records: each member says something, and each list says it once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from memory_audit.errors import UsageError

__all__ = ["MAX_NAMES", "Name", "as_members"]

MAX_NAMES = 10_000
"""Members of one mapping, and texts of one list."""

Name = Annotated[str, msgspec.Meta(min_length=1)]
"""A text that is not empty."""


def as_members(value: Any, where: str) -> dict[str, Any]:
    """Return a mapping as it may be changed.

    Raises:
        UsageError: names `where` and the rule broken: no mapping, null, or a list that says something twice.
    """
    if not isinstance(value, Mapping) or len(value) > MAX_NAMES:
        raise UsageError(f"{where}: expected a mapping of at most {MAX_NAMES} names to values")
    for name, item in value.items():
        if item is None:  # a line that was left unfinished must not stand for the default
            raise UsageError(f"{where}: {name!s:.60} has no value")
        if isinstance(item, list) and (len(item) > MAX_NAMES or len(set(map(str, item))) != len(item)):
            raise UsageError(f"{where}: {name!s:.60} must be a list of at most {MAX_NAMES} different texts")
    return dict(value)
