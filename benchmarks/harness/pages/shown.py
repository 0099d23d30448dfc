"""How results are read and how figures are written in a table."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.harness.resultfile import RESULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["bar", "one", "per_cent", "record", "rows", "table", "thousands"]


@cache
def record(name: str) -> dict[str, Any]:
    """Read a result file."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def rows(name: str, **wanted: object) -> list[dict[str, Any]]:
    """Return the rows of a result whose fields have these values."""
    return [row for row in record(name)["rows"] if all(row.get(field) == value for field, value in wanted.items())]


def one(name: str, **wanted: object) -> dict[str, Any]:
    """Return the only such row.

    Raises:
        ValueError: there is none, or there are several.
    """
    (found,) = rows(name, **wanted)
    return found


def bar(result: str, name: str) -> dict[str, Any]:
    """Return a bar by the beginning of its name.

    Raises:
        ValueError: there is none, or there are several.
    """
    (found,) = (item for item in record(result)["bars"] if item["name"].startswith(name))
    return dict(found)


def per_cent(share: float, digits: int = 0) -> str:
    """Write a share of 1 as per cent; one that would be rounded to 0 with one digit more."""
    text = f"{100 * share:.{digits}f}"
    return f"{100 * share:.{digits + 1}f} %" if share and not float(text) else f"{text} %"


def thousands(number: float) -> str:
    """Write a whole number with commas."""
    return f"{number:,.0f}"


def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Write a Markdown table."""
    every = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in every)
