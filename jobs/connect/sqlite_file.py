"""SQLite files of others: read without changing a byte, written in one transaction, erased.

`mode=ro` alone is not enough. On a write-ahead log it writes into the `-shm` file of the agent, or makes one. So:

- a rollback journal: `mode=ro`, which takes the shared lock of every reader;
- a write-ahead log with its `-shm` file: `readonly_shm=1` besides;
- one without (its writer was killed, and the folder copied): a private copy is read;
- a write-ahead log that is empty or gone: `immutable=1`, and the file is looked at again afterwards.

Where there is no write-ahead log, an agent cannot commit while somebody reads, and gives up after five seconds. `rows`
therefore fetches a page at a time, and holds no lock between two. What the agent writes meanwhile may be missed, and
what it replaces may be seen in both forms, the newer one last; what stays as it is, is seen once.

https://www.sqlite.org/fileformat.html#the_database_header and https://www.sqlite.org/wal.html#read_only_databases
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_audit.errors import HeldError, IncompleteError, StalePlanError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["columns", "erase", "files_of", "reading", "rows", "writing"]

MAGIC = b"SQLite format 3\0"
WAL = 2
"""In byte 19 of a file that has a write-ahead log."""

PAGE = 500
"""Rows fetched at once: some megabytes where each has a vector, and milliseconds."""

BUSY_S = 30.0
"""How long an agent may be in the middle of a write."""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file to read it, changing nothing.

    Raises:
        UsageError: it is missing, no SQLite file, damaged, or left in the middle of a write.
        StalePlanError: it changed while it was read, where SQLite itself could not have seen that.
    """
    with contextlib.ExitStack() as stack:
        place, query, watched = path, "mode=ro", False
        if _has_wal(path):
            log, shared = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
            if not log.exists() or not log.stat().st_size:
                query, watched = "mode=ro&immutable=1", True
            elif shared.exists():
                query = "mode=ro&readonly_shm=1"
            else:
                place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memaudit-"))) / path.name
                for file in (path, log):
                    shutil.copy(file, place.with_name(file.name))
        before = _state(path)
        try:
            connection = sqlite3.connect(f"{place.absolute().as_uri()}?{query}", uri=True, timeout=BUSY_S)
            stack.enter_context(contextlib.closing(connection))
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
        except sqlite3.Error as error:
            raise _told(path, error) from None
        if watched and _state(path) != before:
            raise StalePlanError(f"{path}: an agent wrote to it while it was read: start again")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Change a file in one transaction, which overwrites what it deletes.

    Raises:
        HeldError: an agent is in the middle of a write all the time.
        IncompleteError: it cannot be written to; nothing was changed.
    """
    _has_wal(path)  # it is there, and is one
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise _told(path, error, writing=True) from None


def erase(path: Path) -> None:
    """Rewrite a file without what deleted rows left in its free pages and its log.

    Raises:
        HeldError, IncompleteError: as `writing`; the file is as it was.
    """
    _has_wal(path)
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise _told(path, error, writing=True) from None


def rows(connection: sqlite3.Connection, table: str, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table by rowid: that, and the named columns; all names are this program's own words."""
    page = f"SELECT rowid, {', '.join(names)} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT {PAGE}"  # noqa: S608
    last = -1
    while found := connection.execute(page, (last,)).fetchall():
        yield from found
        last = found[-1][0]


def columns(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Return the columns of each table, in their order: what a connector knows a schema by."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {
        name: tuple(row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,)))
        for name in names
    }


def files_of(path: Path) -> Iterator[Path]:
    """Yield a file and those that SQLite keeps beside it, where they are there."""
    yield from (file for end in ("", "-journal", "-wal", "-shm") if (file := path.with_name(path.name + end)).exists())


def _has_wal(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if len(head) < 20 or not head.startswith(MAGIC):  # noqa: PLR2004 - bytes 18 and 19 are the versions
        raise UsageError(f"{path}: no SQLite file")
    return head[19] == WAL


def _state(path: Path) -> tuple[int, int, bool]:
    found, log = path.stat(), path.with_name(path.name + "-wal")
    return found.st_size, found.st_mtime_ns, log.exists() and log.stat().st_size > 0


def _told(path: Path, error: sqlite3.Error, *, writing: bool = False) -> Exception:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return HeldError(f"{path}: an agent is writing to it all the time: stop it, and start again")
    if writing:
        return IncompleteError(f"{path}: cannot be written to ({error}); it is as it was")
    if path.with_name(path.name + "-journal").exists():
        return UsageError(f"{path}: its writer was killed in the middle of a write: start and stop the agent once")
    return UsageError(f"{path}: cannot be read ({error})")
