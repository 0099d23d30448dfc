"""Files and folders that others made or named: opened without waiting, read within a bound, walked without recursion.

Two kinds. What a user names on the command line may be a pipe, such as a shell's `<(…)`, and is waited for. What lies
in a folder that others can write to (a store, a run, a model) must be a regular file, or a link to one: opening a named
pipe waits for ever, and a device has no end. Both may be far larger than what they should hold.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["UnfitFileError", "named_file", "open_regular", "read_at_most", "read_regular", "walk"]

MAX_DEPTH = 100
"""Folders below each other that are looked into: no store, model or project has as many."""

MAX_FOLDERS = 100_000
"""Folders that are looked into: links may lead in circles, and a few of them to more places than there are names."""


class UnfitFileError(OSError):
    """Something is there, and it is not the file that is meant; `strerror` says why."""


def read_at_most(path: Path, most: int) -> bytes:
    """Read a whole file that a user named, but no more than a byte beyond `most`, which shows that it is too large.

    Raises:
        UsageError: it cannot be read.
    """
    with named_file(path) as file:
        return file.read(most + 1)


@contextmanager
def named_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that a user named; a pipe tells no size before.

    Raises:
        UsageError: it cannot be opened, or not be read within the block.
    """
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path!s:.300}: cannot be read ({error.strerror})") from None
    except ValueError:
        if "\0" not in str(path):
            raise
        raise UsageError(f"{str(path)!r:.300}: cannot be read (no path holds a NUL character)") from None


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Read a whole regular file of at most `max_bytes`; memory is taken for what is there, whatever is expected.

    Raises:
        UnfitFileError: it is no regular file, or larger.
        OSError: as the system says.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise UnfitFileError(errno.EFBIG, f"{size} bytes, at most {max_bytes} are expected")
        data = file.read(size + 1)
    if data is None or len(data) > size:  # None: it has nothing now, as some files of the kernel
        raise UnfitFileError(errno.EINVAL, f"no file of {size} bytes: it grew while it was read, or has no end")
    return data


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading, or a link to one.

    Raises:
        UnfitFileError: it is no regular file; it is not opened then, which a device would notice.
        OSError: as the system says.
    """
    if "\0" in str(path):
        raise UnfitFileError(errno.EINVAL, "no path holds a NUL character")
    _check_regular(os.stat(path))  # noqa: PTH116 - as below
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check_regular(os.fstat(descriptor))  # another may have taken its place
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnfitFileError(errno.EINVAL, "not a file")


def walk(
    folder: Path, *, follow_links: bool = False, skip: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[Path, bool]]:
    """Yield all below a folder that is no folder itself, in no order.

    A folder that is more than MAX_DEPTH deep, is beyond MAX_FOLDERS or cannot be listed stands for what is in it.

    Args:
        folder: Where to begin; nothing is yielded where there is none.
        follow_links: Look into folders that links lead to; else such a link is passed over.
        skip: Tells of a name that neither it nor what is in it is of interest.

    Yields:
        The path, and whether it stands for a folder that was not looked into.
    """
    waiting, seen = [(folder, 0)] if folder.is_dir() else [], 1
    while waiting:
        place, depth = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if skip(entry.name):
                        continue
                    path = place / entry.name
                    if not _is_folder(entry):
                        yield path, False
                    elif entry.is_symlink() and not follow_links:
                        continue
                    elif depth == MAX_DEPTH or seen == MAX_FOLDERS:
                        yield path, True
                    else:
                        seen += 1
                        waiting.append((path, depth + 1))
        except OSError:
            yield place, True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Tell whether an entry is a folder, or a link to one; a link that leads back to itself is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False
