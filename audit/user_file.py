"""Files that users name: they may be missing, pipes, or far larger than what they should hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_at_most"]


def read_at_most(path: Path, most: int) -> bytes:
    """Read a whole file, but no more than a byte beyond `most`: by it the caller sees that the file is too large.

    A pipe, such as a shell's `<(…)`, tells no size before.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
