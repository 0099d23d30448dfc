"""JSON from outside, read strictly: each member of an object once, numbers that a float holds, valid Unicode.

Python's reader takes the last of two members of one name, and another reader the first: what a person checked may not
be what is used. It also takes NaN, and numbers such as `1e999` that are infinite afterwards.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from memory_audit.errors import UsageError
from memory_audit.formats.nesting import MAX_DEPTH, too_deep

__all__ = ["decode"]


def decode(data: bytes, where: str, *, error: type[UsageError] = UsageError) -> Any:
    """Read one JSON value; a byte order mark before it, as Windows writes, is passed over.

    Args:
        data: Of a length that the caller has checked.
        where: Names the file, and the line, for messages.
        error: What is raised.

    Raises:
        UsageError: of that class; not JSON, or one of the above.
    """
    try:
        value = json.loads(
            data.decode("utf-8-sig"), object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse
        )
    except UnicodeDecodeError as problem:
        raise error(f"{where}: not valid UTF-8 at byte {problem.start}") from None
    except _RuleError as problem:
        raise error(f"{where}: {problem}") from None
    except (ValueError, RecursionError) as problem:  # ValueError: also a number of thousands of digits
        raise error(f"{where}: not JSON ({' '.join(str(problem).split())[:120]})") from None
    if too_deep(data, value):
        raise error(f"{where}: more than {MAX_DEPTH} levels of JSON")
    if b"\\ud" in data.lower() and not _is_unicode(value):
        raise error(f"{where}: not valid Unicode (a lone surrogate)")
    return value


class _RuleError(Exception):
    """A rule is broken that Python's own reader does not have."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        (name, _), *_ = (Counter(name for name, _ in pairs)).most_common(1)
        raise _RuleError(f"a member is there twice: {name!r:.60}")
    return record


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):  # JSON has no infinity, but a way to write one
        raise _RuleError(f"{text:.40} is no number that a float holds")
    return number


def _refuse(text: str) -> NoReturn:
    raise _RuleError(f"{text} is not a JSON number")


def _is_unicode(value: Any) -> bool:
    """Tell whether UTF-8 can hold a value: JSON can spell half a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
