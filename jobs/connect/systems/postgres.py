"""A table in PostgreSQL, with or without pgvector: `postgres:postgresql://USER@HOST/DATABASE`.

    --option table=app.memories --option id=id --option text=content
    --option owner=user_id,session_id --option created=created_at --option metadata=kind,tags

The options name its columns. Memories are its rows, those that the agent has marked as deleted, too. Tables that are
emptied with it (`ON DELETE CASCADE`, a foreign key on the id) are layers of their own.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from psycopg import sql

from memory_audit.errors import UsageError
from memory_audit.integrations.record import utc_ms
from memory_audit.jobs.connect import postgres_server
from memory_audit.jobs.connect.connector import MEMORIES, Facts, Record, Removed, Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["Options", "Postgres"]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `--option` must and may say; names are as PostgreSQL has them, without quotes."""

    table: str
    """`TABLE`, which is one of the schema `public`, or `SCHEMA.TABLE`."""

    id: str
    """Column that is another in each row."""

    text: str
    """Column with what the agent is shown."""

    owner: str = ""
    """Columns that say whose it is, by commas, the one that isolates most first."""

    created: str = ""
    """Column with a time: timestamp or timestamptz; without a zone it is UTC."""

    metadata: str = ""
    """Further columns that the agent may be shown, by commas."""


class Postgres:
    """A table of memories."""

    facts = Facts(
        written_for="PostgreSQL 14 to 18, pgvector 0.8",
        vouched=MappingProxyType({
            "record_id": "caller", "text": "caller", "owner": "caller", "writer": "nobody", "created_at_ms": "caller",
            "metadata": "caller",
        }),
        unreachable=postgres_server.UNREACHABLE,
        guard_point="a BEFORE INSERT OR UPDATE trigger of the table",
    )  # fmt: skip

    def __init__(self, place: str, options: Options) -> None:
        if not place.startswith(postgres_server.SCHEMES):
            raise UsageError(f"postgres:{place!r:.120} is no postgresql:// URL")
        self.url = place
        self.options = options
        schema, _, table = options.table.rpartition(".")
        self.table = schema or "public", table
        self.owner, self.metadata = _names(options.owner), _names(options.metadata)
        named = (options.id, options.text, *self.owner, *_names(options.created), *self.metadata)
        self.columns = tuple(dict.fromkeys(named))

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        with postgres_server.reading(self.url) as connection:
            self._known(connection)
        return f"table {'.'.join(self.table)}, columns {', '.join(self.columns)}"

    def records(self) -> Iterator[Record]:
        """Yield all memories by id."""
        with postgres_server.reading(self.url) as connection:
            self._known(connection)
            query = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(
                sql.SQL(", ").join(map(_text, self.columns)), sql.Identifier(*self.table),
                sql.Identifier(self.options.id),
            )  # fmt: skip
            previous = None
            for record in map(self._record, postgres_server.rows(connection, query)):
                if record.record_id == previous:
                    raise UsageError(f"{self._where}: two rows with {self.options.id} {previous!r:.80}")
                yield record
                previous = record.record_id

    def hold(self) -> AbstractContextManager[None]:
        """Hold nothing: a deletion is one transaction, and an agent sees it at once."""
        return nullcontext()

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every row of the table, and of those that are emptied with it."""
        with postgres_server.reading(self.url) as connection:
            self._known(connection)
            layers = _cascades(connection, self.table, self.options.id)
            for layer, table, column in ((MEMORIES, self.table, self.options.id), *layers):
                query = sql.SQL("SELECT {}, ROW(t.*)::text FROM {} AS t").format(_text(column), sql.Identifier(*table))
                for name, row in postgres_server.rows(connection, query):
                    raw = json.dumps(row).encode()
                    yield Row(layer=layer, raw=raw, kept=None if name in removed.ids else raw)

    def delete(self, removed: Removed) -> None:
        """Delete the rows."""
        query = sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(sql.Identifier(*self.table), _text(self.options.id))
        with postgres_server.writing(self.url) as connection:
            connection.execute(query, (sorted(removed.ids),))

    def clean(self, removed: Removed) -> None:
        """Do nothing: PostgreSQL emptied what refers to the rows."""

    def erase(self) -> None:
        """Rewrite the tables and the log."""
        with postgres_server.reading(self.url) as connection:
            layers = _cascades(connection, self.table, self.options.id)
        postgres_server.erase(self.url, list(dict.fromkeys([self.table, *(table for _, table, _ in layers)])))

    def files(self) -> Iterator[Path]:
        """Yield the files of the database, where they are on this machine."""
        yield from postgres_server.files_of(self.url)

    @property
    def _where(self) -> str:
        return f"{self.url}: table {'.'.join(self.table)!r:.120}"

    def _known(self, connection: postgres_server.Connection) -> None:
        """Raises UsageError: no such table or column."""
        found = postgres_server.columns(connection, self.table[0]).get(self.table[1])
        if found is None:
            raise UsageError(f"{self._where}: no such table")
        if missing := [name for name in self.columns if name not in found]:
            raise UsageError(f"{self._where}: no column {missing[0]!r:.80}; it has {', '.join(found):.200}")

    def _record(self, row: tuple[Any, ...]) -> Record:
        values = dict(zip(self.columns, row, strict=True))
        name, text = values[self.options.id], values[self.options.text]
        if name is None or text is None:
            raise UsageError(f"{self._where}: a row with {self.options.id} {name!r:.80} has no id or no text")
        return Record(
            record_id=name, text=text, owner=tuple((key, value) for key in self.owner if (value := values[key])),
            created_at_ms=utc_ms(values.get(self.options.created)),
            metadata={key: value for key in self.metadata if (value := values[key]) is not None},
        )  # fmt: skip


def _names(option: str) -> tuple[str, ...]:
    return tuple(name for part in option.split(",") if (name := part.strip()))


def _text(column: str) -> sql.Composed:
    return sql.SQL("{}::text").format(sql.Identifier(column))


def _cascades(
    connection: postgres_server.Connection, table: tuple[str, str], column: str
) -> list[tuple[str, tuple[str, str], str]]:
    """Return layer, schema with name, and column of what PostgreSQL deletes with a row."""
    found = connection.execute(
        "SELECT n.nspname::text, c.relname::text, a.attname::text FROM pg_constraint f"
        " JOIN pg_class c ON c.oid = f.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1]"
        " JOIN pg_class r ON r.oid = f.confrelid JOIN pg_namespace s ON s.oid = r.relnamespace"
        " JOIN pg_attribute i ON i.attrelid = f.confrelid AND i.attnum = f.confkey[1]"
        " WHERE f.contype = 'f' AND f.confdeltype = 'c' AND cardinality(f.conkey) = 1"
        " AND (s.nspname, r.relname, i.attname) = (%s, %s, %s) ORDER BY 1, 2, 3",
        (*table, column),
    )
    return [(f"{schema}.{name} by {of}", (schema, name), of) for schema, name, of in found]
