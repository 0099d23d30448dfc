"""A lock on a folder, for what two processes must not do at once; it leaves no file behind."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from audit.errors import IncompleteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["locked"]


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a folder against all others, or (shared) against those who want it alone; waits until it is free.

    Not to be taken twice by one thread. It holds on one machine; file systems that lock no folders are not guarded.

    Raises:
        IncompleteError: the folder cannot be opened.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise IncompleteError(f"cannot open folder {folder} ({error.strerror})") from error
    try:
        with suppress(OSError):  # a network file system, say
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
