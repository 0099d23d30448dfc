"""Files that are there whole or not at all, and stay there after a crash (POSIX local and network file systems).

`create` publishes by create-if-absent:

1. write a file of a fresh name into a scratch folder on the same file system, and fsync it;
2. `link` it to its final name: the kernel refuses if that name exists, so of two writers exactly one wins;
3. fsync the folder, so that the name survives too; remove the scratch name.

A kill leaves the final name absent or complete, and at worst a scratch file that nobody reads. `replace` does the same
with `rename`, for the few files that are meant to change (pins, policies). A writer locks its scratch file, so that
`remove_leftovers` can tell those of the dead. Reads are bounded (`memory_audit.formats.outside_file`). Only this module
writes; it calls `os` by attribute, so that tests can make any call fail.
"""
# ruff: noqa: PTH102, PTH105, PTH108 - plain `os` calls, one per system call, are what the crash tests break

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from typing import TYPE_CHECKING

from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.formats.outside_file import UnfitFileError, read_regular
from memory_audit.provenance.folder_lock import is_of_this_machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = [
    "PARTIAL", "create", "ensure_folder", "is_leftover", "link", "open_scratch", "read_bounded", "remove",
    "remove_leftovers", "replace", "sync_folder",
]  # fmt: skip

PARTIAL = re.compile(r"\.[0-9a-f]{24}\.part")
"""How a scratch file is named."""

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Nothing is there; a link that leads back to itself leads nowhere."""


def create(final: Path, data: bytes, *, scratch: Path, mode: int = 0o644, synced: bool = True) -> bool:
    """Create `final` with exactly `data`, durable when this returns.

    Args:
        final: The file's name; its folder exists.
        data: The content.
        scratch: An existing folder on the same file system.
        mode: Permission bits, before the process's umask.
        synced: False for one of many files: their names are durable after `sync_folder`.

    Returns:
        False where `final` exists already: it is left alone.

    Raises:
        IncompleteError: the disk is full, or another operating system error; the message tells if the name is there.
    """
    try:
        with _written(scratch, data, mode) as partial:
            try:
                os.link(partial, final)
                created = True
            except FileExistsError:
                created = False
    except OSError as error:
        raise IncompleteError(f"cannot write {final} ({_reason(error)}); nothing was published") from error
    if created and synced:
        _keep_name(final)
    return created


def replace(final: Path, data: bytes | Iterable[bytes], *, mode: int = 0o644, synced: bool = True) -> None:
    """Write `data` to `final` in one step, replacing what was there.

    Args:
        final: The file's name; its folder exists.
        data: The content, whole or in parts as they come; where making them fails, nothing is replaced.
        mode: Permission bits, before the process's umask.
        synced: False for what nobody looks for after a power cut.

    Raises:
        IncompleteError: an operating system error; the message tells if the old content is intact.
    """
    try:
        with _written(final.parent, data, mode, synced=synced) as partial:
            os.replace(partial, final)
    except OSError as error:
        raise IncompleteError(f"cannot write {final} ({_reason(error)}); nothing was replaced") from error
    if synced:
        _keep_name(final)


def link(final: Path, source: Path) -> bool:
    """Give a file that is never changed one more name, durable after `sync_folder`.

    Returns:
        False where that cannot be: on another file system, or on one without links.
    """
    try:
        os.link(source, final)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def ensure_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Create a folder and its parents, durably; `mode` is the folder's, before the process's umask.

    Raises:
        UsageError: there is something else of that name.
        IncompleteError: an operating system error.
    """
    missing = []
    while not folder.is_dir():
        if folder.exists() and not folder.is_dir():  # a folder that another writer has just made is one
            raise UsageError(f"{folder} is not a folder")
        missing.append(folder)
        folder = folder.parent
    try:
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another writer was faster
                os.mkdir(path, mode if path == missing[0] else 0o777)
            _sync_folder(path.parent)
    except OSError as error:
        raise IncompleteError(f"cannot create folder {path} ({_reason(error)})") from error


def sync_folder(folder: Path) -> None:
    """Make the names of the files in a folder durable.

    Raises:
        IncompleteError: an operating system error.
    """
    try:
        _sync_folder(folder)
    except OSError as error:
        raise IncompleteError(f"cannot sync folder {folder} ({_reason(error)})") from error


def remove(path: Path) -> None:
    """Remove a file, durably; absent is fine.

    Raises:
        IncompleteError: an operating system error.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise IncompleteError(f"cannot remove {path} ({_reason(error)})") from error


def is_leftover(path: Path) -> bool:
    """Return whether this is a file named as the scratch files are that a killed writer leaves behind."""
    return PARTIAL.fullmatch(path.name) is not None and path.is_file()


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers left in a folder, which may be text or keys; what a living writer holds stays.

    Where other machines write too (`memory_audit.provenance.folder_lock`), or the user may not, nothing is removed.
    """
    with contextlib.suppress(OSError):
        found = [path for path in folder.iterdir() if is_leftover(path)]
        if found and is_of_this_machine(folder):
            for path in found:
                _remove_dead(path)


def _remove_dead(path: Path) -> None:
    with contextlib.suppress(OSError):  # its writer lives, or has just ended
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(descriptor)


def read_bounded(path: Path, max_bytes: int, what: str) -> bytes:
    """Read a whole file of at most `max_bytes`.

    Raises:
        VerificationError: the file is missing or larger, or no regular file (`memory_audit.formats.outside_file`).
        UsageError: the operating system refuses to read it.
    """
    try:
        return read_regular(path, max_bytes)
    except UnfitFileError as error:
        raise VerificationError(f"{what}: {error.strerror}") from None
    except OSError as error:
        if error.errno in _ABSENT:
            raise VerificationError(f"{what}: missing") from None
        raise UsageError(f"{what}: cannot read it ({_reason(error)})") from None


@contextlib.contextmanager
def _written(folder: Path, data: bytes | Iterable[bytes], mode: int, *, synced: bool = True) -> Iterator[Path]:
    """Write a scratch file, and hold it until it has its final name."""
    partial, descriptor = open_scratch(folder, mode)
    try:
        for part in (data,) if isinstance(data, bytes) else data:
            view = memoryview(part)
            while view:
                view = view[os.write(descriptor, view) :]
        if synced:
            os.fsync(descriptor)
        yield partial
    finally:
        os.close(descriptor)
        _unlink_quietly(partial)


def open_scratch(folder: Path, mode: int) -> tuple[Path, int]:
    """Create a scratch file that is locked until it is closed; return it and its descriptor. Raises OSError."""
    while True:
        partial = folder / f".{secrets.token_hex(12)}.part"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with contextlib.suppress(OSError):  # a network file system, say; or whoever looks holds it already
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return partial, descriptor
        os.close(descriptor)  # taken for a dead writer's before it was locked


def _keep_name(final: Path) -> None:
    try:
        _sync_folder(final.parent)
    except OSError as error:
        raise IncompleteError(
            f"{final} is there, but its folder cannot be synced ({_reason(error)}): a power cut may undo it"
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unlink_quietly(path: Path) -> None:
    """Remove a scratch file, if it is there; one that stays must not hide the error that led here."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
