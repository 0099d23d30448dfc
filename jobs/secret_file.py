"""Secrets in files that nobody else may read: the guard's token, passphrases and PINs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.provenance.key_files.key_file import OPEN_TO_OTHERS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_secret"]


def read_secret(file: Path, what: str, most: int) -> bytes:
    """Read a secret of at most `most` bytes, or a byte more, which shows that it is too long.

    Raises:
        UsageError: it cannot be read, or others may read it.
    """
    try:
        with file.open("rb") as stream:
            mode, data = os.fstat(stream.fileno()).st_mode, stream.read(most + 1)
    except OSError as error:
        raise UsageError(f"{file}: cannot read the {what} ({error.strerror})") from None
    if mode & OPEN_TO_OTHERS:
        raise UsageError(f"{file}: the {what} is open to others: chmod 600 it")
    return data
