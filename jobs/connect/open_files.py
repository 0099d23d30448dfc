"""Who has files open, where a system takes no lock that would tell (Linux, `/proc`).

Seen are processes of the same user and, for an administrator, all of this machine's; not those of other machines, nor
one that opens the file a moment later.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memory_audit.errors import HeldError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["closed"]

PROCESSES = Path("/proc")


@contextmanager
def closed(folder: Path, files: Iterable[Path]) -> Iterator[None]:
    """Begin only where no other process has one of the files open.

    Raises:
        HeldError: one has; says which process.
    """
    wanted = set(_numbers(files))
    for process in sorted(PROCESSES.glob("[0-9]*")):
        if process.name != str(os.getpid()) and not wanted.isdisjoint(_opened(process / "fd")):
            raise HeldError(f"{folder}: process {process.name} has it open: stop the agent, and start again")
    yield


def _opened(handles: Path) -> Iterator[tuple[int, int]]:
    with suppress(OSError):  # the process is gone, or is another user's
        yield from _numbers(handles.iterdir())


def _numbers(files: Iterable[Path]) -> Iterator[tuple[int, int]]:
    """Yield device and inode of files, but for those that are gone meanwhile."""
    for file in files:
        with suppress(OSError):
            found = file.stat()
            yield found.st_dev, found.st_ino
