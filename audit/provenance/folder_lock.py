"""A lock on a folder, for what two processes must not do at once; it leaves no file behind."""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memory_audit.errors import IncompleteError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_of_this_machine", "locked"]

LOOKS_S = 0.05
"""Between two looks at a lock that is waited for so long and no longer."""

OF_ONE_MACHINE = frozenset({
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "tmpfs", "xfs", "zfs",
})  # fmt: skip
"""File systems that no second machine writes to. Others may grant each machine a lock of its own (NFS, for folders)."""

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")


@contextmanager
def locked(folder: Path, *, shared: bool = False, wait_s: float | None = None) -> Iterator[bool]:
    """Hold a folder against all others, or (shared) against those who want it alone.

    Not to be taken twice by one thread. It holds on one machine; file systems that lock no folders are not guarded.

    Args:
        folder: It exists.
        shared: Together with others who share it.
        wait_s: How long to wait until it is free, in seconds; None is for ever.

    Yields:
        Whether no one else can hold it now, on whatever machine.

    Raises:
        IncompleteError: the folder cannot be opened, or is held by others all the time.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise IncompleteError(f"cannot open folder {folder} ({error.strerror})") from error
    try:
        try:
            _take(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait_s)
        except BlockingIOError:
            raise IncompleteError(f"another command is at work in {folder}: start again when it is done") from None
        except OSError:  # a network file system, say
            yield False
        else:
            yield is_of_this_machine(folder)
    finally:
        os.close(handle)


def is_of_this_machine(folder: Path) -> bool:
    """Tell whether a folder lies on a file system of this machine alone; False where that cannot be told."""
    place = os.path.realpath(folder)
    found = best = ""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:  # no Linux
        return False
    for line in lines:
        mount, _, kind = line.partition(b" - ")
        point = os.fsdecode(_ESCAPED.sub(lambda digits: bytes([int(digits[1], 8)]), mount.split(b" ")[4]))
        if os.path.commonpath([place, point]) == point and len(point) >= len(best):  # the last one hides those before
            best, found = point, os.fsdecode(kind.split(b" ")[0])
    return found in OF_ONE_MACHINE


def _take(handle: int, kind: int, wait_s: float | None) -> None:
    if wait_s is None:
        fcntl.flock(handle, kind)
        return
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(LOOKS_S)
        else:
            return
