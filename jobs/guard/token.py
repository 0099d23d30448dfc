"""The token of a guard over HTTP: from a file that nobody else may read, or from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.jobs.secret_file import read_secret

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MIN_TOKEN_CHARS", "guard_token"]

MIN_TOKEN_CHARS = 16

MAX_TOKEN_CHARS = 4_096
"""A header has room for it, in clients, proxies and the server."""


def guard_token(file: Path | None) -> str:
    """Read the token from a file or the environment; empty where there is none.

    Raises:
        UsageError: it is none, or the file cannot be read, or others may read it.
    """
    if file is None:
        token = os.environ.get("MEMAUDIT_GUARD_TOKEN", "")
    else:
        try:
            token = read_secret(file, "token", 2 * MAX_TOKEN_CHARS).decode("ascii").strip()
        except UnicodeDecodeError:
            raise UsageError(f"{file}: cannot read the token (not ASCII)") from None
    fits = MIN_TOKEN_CHARS <= len(token) <= MAX_TOKEN_CHARS and token.isascii() and token.isprintable()
    if (token or file is not None) and not fits:
        raise UsageError(
            f"the guard's token must have {MIN_TOKEN_CHARS} to {MAX_TOKEN_CHARS:,} printable ASCII characters"
        )
    return token
