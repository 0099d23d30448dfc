"""The lease of a store: of the commands that take memories out of it, one is at work at a time, on whatever machine.

    STORE/scratch/lease-7.json   {"host": "node-3", "pid": 4711, "command": "nightly", "token": "…"}

1. Who wants the lease looks at the file with the highest number. It is free EXPIRES_S after its last change, by the
   file system's own clock; those of the machines do not matter. On a file system of this machine alone it is free as
   soon as nobody has it locked (`flock`); elsewhere a lock may be each machine's own, and says nothing.
2. A lease that is free is taken by creating the next number, if that is absent: of two takers one wins (`link` is
   atomic on NFS, too). The file is locked before it has its name. Whoever finds a higher number then had an old view of
   the folder, and gives way.
3. Its holder changes its time every RENEW_S, and removes it when it is done.

A holder that is killed frees it at once on a file system of this machine, and after EXPIRES_S elsewhere. One that was
stopped for longer (a suspended machine) may wake beside its successor. It learns that from `Lease.check`; and of two
who publish the same version of a store one always fails (`memory_audit.snapshot.publishing.publish`), so that nothing
is lost even then. The lease of a store in an object store is `memory_audit.jobs.store.object_lease`.
"""
# ruff: noqa: PTH108 - plain `os` calls, as in `memory_audit.provenance.durable`

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import HeldError, IncompleteError, UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_regular
from memory_audit.jobs.store import object_lease
from memory_audit.provenance import durable
from memory_audit.provenance.folder_lock import is_of_this_machine
from memory_audit.provenance.mirror import mirror_of
from memory_audit.report.untrusted import as_line
from memory_audit.snapshot.layout import WRITERS_MODE, versions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_audit.jobs.store.object_lease import ObjectLease

__all__ = ["EXPIRES_S", "Lease", "leased"]

RENEW_S = 20.0
EXPIRES_S = 120.0
"""Six renewals: a server that does not answer for a minute ends no night."""

LOOKS_S = 1.0
"""Between two looks at a lease that is waited for; each writes a file, to know the file system's time."""

MAX_BYTES = 4_096

_NAME = re.compile(r"lease-([1-9][0-9]{0,8})\.json", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease that is held."""

    path: Path
    data: bytes
    """What its file says; no other lease says the same."""

    descriptor: int
    """Of the file, locked."""

    def check(self) -> None:
        """Make sure that it is still held, before something that cannot be undone.

        Raises:
            IncompleteError: another machine took it, since this one stood still for too long.
        """
        if _read(self.path) != self.data:
            raise IncompleteError(f"{self.path} was taken over, as this machine stood still: start again")


@contextmanager
def leased(store: Path, command: str, *, wait_s: float = 0.0, new: bool = False) -> Iterator[Lease | ObjectLease]:
    """Hold the lease of a store.

    Args:
        store: Its folder.
        command: What holds it, told to those who come meanwhile.
        wait_s: How long to wait for others, seconds.
        new: The store may be yet to be made.

    Raises:
        HeldError: others hold it all the time.
        UsageError: there is no store.
        IncompleteError: its folder cannot be written to.
    """
    if not new:
        versions(store)  # says where there is none
    if (mirror := mirror_of(store)) is not None:
        with object_lease.held(mirror.remote, "lease", command, wait_s=wait_s) as taken:
            if taken is None:
                by = _named(object_lease.holder(mirror.remote, "lease"), mirror.remote.address)
                raise HeldError(f"{store} is held by {by}: --wait SECONDS waits for it")
            yield taken
        return
    folder = store / "scratch"
    durable.ensure_folder(folder, mode=WRITERS_MODE)
    until = time.monotonic() + wait_s
    try:
        while (lease := _take(folder, command)) is None:
            if time.monotonic() >= until:
                raise HeldError(f"{store} is held by {_holder(folder)}: --wait SECONDS waits for it")
            time.sleep(LOOKS_S)
    except OSError as error:
        raise IncompleteError(f"cannot take the lease of {store} ({error.strerror})") from error
    done = threading.Event()
    renewing = threading.Thread(target=_renew, args=(lease, done), daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        done.set()
        renewing.join()
        if _read(lease.path) == lease.data:
            with contextlib.suppress(OSError):  # it expires
                os.unlink(lease.path)
        os.close(lease.descriptor)


def _take(folder: Path, command: str) -> Lease | None:
    """Take the lease where it is free; None where others hold it, or were faster."""
    who = {"host": socket.gethostname(), "pid": os.getpid(), "command": command, "token": secrets.token_hex(8)}
    data = json.dumps(who).encode()
    partial, descriptor = durable.open_scratch(folder, 0o644)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
        number = _newest(folder)
        if number and not _is_free(folder / _name(number), now_s=os.fstat(descriptor).st_mtime):
            os.close(descriptor)
            return None
        os.link(partial, path := folder / _name(number + 1))
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, FileExistsError):
            return None
        raise
    finally:
        os.unlink(partial)
    found = _numbers(folder)
    won = max(found, default=0) == number + 1  # what was looked at may have been old, as a network file system keeps it
    for gone in [other for other in found if other <= number] if won else [number + 1]:
        with contextlib.suppress(OSError):
            os.unlink(folder / _name(gone))
    if not won:
        os.close(descriptor)
        return None
    return Lease(path=path, data=data, descriptor=descriptor)


def _is_free(path: Path, *, now_s: float) -> bool:
    """Tell whether the holder of the newest lease is gone; `now_s` is the file system's own time."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # it has just ended: another look will tell
        return False
    try:
        # A process that its holder forked has the lock too, and may outlive it; but it renews nothing.
        if now_s - os.fstat(descriptor).st_mtime > EXPIRES_S:
            return True
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return is_of_this_machine(path.parent)
    except OSError:  # it is locked, or cannot be
        return False
    finally:
        os.close(descriptor)


def _renew(lease: Lease, done: threading.Event) -> None:
    while not done.wait(RENEW_S):
        with contextlib.suppress(OSError):  # a server that comes back
            os.utime(lease.descriptor)


def _holder(folder: Path) -> str:
    """Say who holds the lease."""
    path = folder / _name(_newest(folder))
    return _named(_read(path) or b"{}", str(path))


def _named(data: bytes, where: str) -> str:
    """Say who holds a lease, by the word of a file that others write."""
    try:
        who = outside_json.decode(data, where)
    except UsageError:
        who = {}
    known = who if isinstance(who, dict) else {}
    command, host, pid = (as_line(str(known.get(name, "unknown"))) for name in ("command", "host", "pid"))
    return f"another command (memaudit {command}, process {pid} on {host})"


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, MAX_BYTES)
    except OSError:
        return None


def _numbers(folder: Path) -> list[int]:
    return [int(found[1]) for path in folder.iterdir() if (found := _NAME.fullmatch(path.name))]


def _newest(folder: Path) -> int:
    """Number of the newest lease; 0 where there is none."""
    return max(_numbers(folder), default=0)


def _name(number: int) -> str:
    return f"lease-{number}.json"
