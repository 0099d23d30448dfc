"""PostgreSQL databases of others: read in one snapshot, written in one transaction, rewritten.

Reading is a read-only transaction of isolation level REPEATABLE READ. It takes ACCESS SHARE alone, which only a change
of the schema waits for, and fetches a page at a time by a cursor of the server's. Where row-level security would hide
rows, PostgreSQL refuses the query (`row_security = off`): half a table is not read.

A password is libpq's matter: PGPASSWORD, ~/.pgpass or a service.

https://www.postgresql.org/docs/current/sql-vacuum.html and
https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADMIN-BACKUP
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection, sql

from memory_audit.errors import HeldError, IncompleteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SCHEMES", "UNREACHABLE", "Connection", "columns", "erase", "files_of", "reading", "rows", "writing"]

SCHEMES = ("postgresql://", "postgres://")

PAGE = 500
"""Rows fetched at once: some megabytes where each has a vector."""

BUSY_S = 10
"""How long an agent's locks are waited for; meanwhile others wait behind."""

MAX_SEGMENTS = 64
"""Of the write-ahead log that are overwritten: a gigabyte, PostgreSQL's own default of `max_wal_size`."""

SESSION = (
    "SET LOCAL row_security = off", "SET LOCAL search_path = pg_catalog", "SET LOCAL timezone = 'UTC'",
    "SET LOCAL datestyle = 'ISO'", "SET LOCAL extra_float_digits = 1", "SET LOCAL bytea_output = 'hex'",
)  # fmt: skip
"""The same forms in every process, and no function of a stranger's in place of PostgreSQL's own."""

UNREACHABLE = (
    "Archived segments of the write-ahead log, replicas, replication slots, dumps, backups and snapshots of its disk.",
    "The server's log, where statements are logged, and traces of the agent or of a pooler.",
    "Freed blocks of the file system or the disk, where a file was rewritten.",
)


@contextlib.contextmanager
def reading(url: str) -> Iterator[Connection]:
    """Open a snapshot of a database.

    Raises:
        UsageError: it cannot be reached or read.
    """
    try:
        with contextlib.closing(_connect(url)) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            _prepare(connection)
            yield connection
    except (psycopg.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{url}: cannot be read ({_line(error)})") from None


@contextlib.contextmanager
def writing(url: str) -> Iterator[Connection]:
    """Change a database in one transaction.

    Raises:
        HeldError: somebody else holds a lock all the time.
        IncompleteError: it cannot be written to; nothing was changed.
    """
    try:
        with _connect(url) as connection:
            _prepare(connection)
            connection.execute(f"SET LOCAL lock_timeout = '{BUSY_S}s'")
            yield connection
    except psycopg.Error as error:
        raise _told(url, error) from None


def erase(url: str, tables: Sequence[tuple[str, str]]) -> None:
    """Rewrite tables, their statistics, and the log, as far as the role may.

    Args:
        url: Of the database.
        tables: Schema and name.

    Raises:
        HeldError: somebody holds a lock all the time; what was done is so.
        IncompleteError: a table cannot be rewritten.
    """
    try:
        with contextlib.closing(_connect(url)) as connection:
            connection.autocommit = True
            connection.execute(f"SET lock_timeout = '{BUSY_S}s'")
            for table in tables:
                connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(*table)))
            connection.execute("VACUUM (FULL) pg_catalog.pg_statistic")  # a warning where it is not the role's
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                _erase_log(connection)
    except psycopg.Error as error:
        raise _told(url, error) from None


def rows(connection: Connection, query: sql.Composed, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield what a query finds, a page at a time."""
    with connection.cursor(name="memaudit") as cursor:
        cursor.itersize = PAGE
        cursor.execute(query, values or None)
        yield from cursor


def columns(connection: Connection, schema: str) -> dict[str, tuple[str, ...]]:
    """Return the columns of each table of a schema, in their order."""
    found = connection.execute(
        "SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum) FROM pg_class c"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relkind IN ('r', 'p') GROUP BY 1",
        (schema,),
    )
    return {name: tuple(names) for name, names in found}


def files_of(url: str) -> Iterator[Path]:
    """Yield the files of a database and the write-ahead log; none where they are not on this machine, or not readable.

    That a folder is this server's is told by the identifier in its `pg_control`.
    """
    with reading(url) as connection:
        try:
            asked = connection.execute(
                "SELECT current_setting('data_directory'), system_identifier,"
                " (SELECT oid FROM pg_database WHERE datname = current_database()) FROM pg_control_system()"
            ).fetchone()
        except psycopg.errors.InsufficientPrivilege:
            return
    if asked is None:
        return
    folder, identifier, database = Path(asked[0]), int(asked[1]), int(asked[2])
    try:
        with (folder / "global" / "pg_control").open("rb") as file:
            if int.from_bytes(file.read(8), "little", signed=True) != identifier:
                return
    except OSError:
        return
    for pattern in (f"base/{database}/*", f"pg_tblspc/*/*/{database}/*", "pg_wal/*"):
        yield from (path for path in sorted(folder.glob(pattern)) if path.is_file())


def _connect(url: str) -> Connection:
    opened: Connection = psycopg.connect(url, connect_timeout=30, application_name="memaudit", client_encoding="utf8")
    return opened


def _prepare(connection: Connection) -> None:
    for statement in SESSION:
        connection.execute(statement.encode())


def _erase_log(connection: Connection) -> None:
    """Have old segments removed or recycled, and overwrite those: a switch fills a segment with zeros to its end."""
    _switch(connection)
    connection.execute("CHECKPOINT")
    counted = connection.execute("SELECT count(*) FROM pg_ls_waldir()").fetchone()
    for _ in range(min(counted[0] if counted else 0, MAX_SEGMENTS)):
        _switch(connection)
    connection.execute("CHECKPOINT")


def _switch(connection: Connection) -> None:
    connection.execute("SELECT pg_logical_emit_message(false, 'memaudit', '')")  # an empty segment is not switched
    connection.execute("SELECT pg_switch_wal()")


def _told(url: str, error: psycopg.Error) -> Exception:
    if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled):
        return HeldError(f"{url}: an agent holds a transaction open all the time: stop it, and start again")
    return IncompleteError(f"{url}: cannot be written to ({_line(error)})")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
