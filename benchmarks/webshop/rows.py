"""Reading the benchmarks' data files: JSON lists of objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from audit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_rows"]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a JSON file that holds a list of objects.

    Raises:
        UsageError: the file is missing, or is not a list of objects.
    """
    try:
        rows = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{path}: not found; give the folder of benchmark data with --data") from None
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({str(error)[:80]})") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{path}: expected a JSON list of objects that is not empty")
    return rows
