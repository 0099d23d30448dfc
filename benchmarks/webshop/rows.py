"""Reading the benchmarks' data files: JSON lists of objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.public_data import reading

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_rows"]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a JSON file that holds a list of objects.

    Raises:
        UsageError: the file is missing, or is not a list of objects.
    """
    with reading(path):
        rows = json.loads(path.read_bytes())
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            raise ValueError("expected a JSON list of objects that is not empty")
    return rows
