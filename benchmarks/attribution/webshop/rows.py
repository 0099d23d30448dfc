"""Reading the benchmarks' data files: JSON lists of objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_rows"]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a JSON file that holds a list of objects; called under `benchmarks.harness.public_data.reading`.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no such list, or an empty one.
    """
    rows = json.loads(path.read_bytes())
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError("expected a JSON list of objects that is not empty")
    return rows
