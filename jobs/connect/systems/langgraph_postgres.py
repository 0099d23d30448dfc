"""LangGraph's `PostgresStore`, and the checkpoints that may lie beside it: `langgraph:postgresql://USER@HOST/DATABASE`.

As in SQLite (`memory_audit.jobs.connect.systems.langgraph`), but for these: a store's own reads move the expiry of what
they find, so that it is read by SELECT alone; a deleted memory takes its vectors along; what a thread read lies in
`checkpoint_blobs`, and what nodes wrote in `checkpoint_writes`. Other tables of the schema are not LangGraph's.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from psycopg import sql

from memory_audit.jobs.connect import postgres_server
from memory_audit.jobs.connect.systems import langgraph

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["LangGraphPostgres", "Options"]

THREAD = ("thread_id", "checkpoint_ns")

RAW = frozenset({"blob"})
"""Columns that are bytes; every other one is read as text."""


class Options(langgraph.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `--option` may say."""

    schema: str = "public"
    """Of the tables."""


class LangGraphPostgres(langgraph.LangGraph):
    """A schema of LangGraph's."""

    kind = "postgres"
    facts = replace(
        langgraph.LangGraph.facts, written_for="langgraph-checkpoint-postgres 3.2.0, langgraph 1.2.24",
        unreachable=postgres_server.UNREACHABLE,
    )  # fmt: skip
    known: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({
        "store": langgraph.STORE,
        "store_vectors": langgraph.VECTORS,
        "checkpoints": langgraph.CHECKPOINTS,
        "checkpoint_blobs": (*THREAD, "channel", "version", "type", "blob"),
        "checkpoint_writes": (*THREAD, "checkpoint_id", "task_id", "idx", "channel", "type", "blob", "task_path"),
    })  # fmt: skip
    states: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({
        "checkpoints": ("checkpoint", "metadata"), "checkpoint_blobs": ("blob",), "checkpoint_writes": ("blob",),
    })  # fmt: skip
    options: Options

    def erase(self) -> None:
        """Rewrite the tables and the log."""
        with self._reading() as connection:
            tables = self._tables(connection)
        postgres_server.erase(self.place, [(self.options.schema, table) for table in tables])

    def files(self) -> Iterator[Path]:
        """Yield the files of the database, where they are on this machine."""
        yield from postgres_server.files_of(self.place)

    def _reading(self) -> AbstractContextManager[Any]:
        return postgres_server.reading(self.place)

    def _writing(self) -> AbstractContextManager[Any]:
        return postgres_server.writing(self.place)

    def _columns(self, connection: Any) -> dict[str, tuple[str, ...]]:
        found = postgres_server.columns(connection, self.options.schema)
        return {name: found[name] for name in self.known if name in found}

    def _rows(self, connection: Any, table: str) -> Iterator[dict[str, Any]]:
        names = self.known[table]
        columns = (sql.SQL("{}" if name in RAW else "{}::text").format(sql.Identifier(name)) for name in names)
        query = sql.SQL("SELECT {} FROM {} ORDER BY 1, 2, 3").format(
            sql.SQL(", ").join(columns), sql.Identifier(self.options.schema, table)
        )
        for values in postgres_server.rows(connection, query):
            yield dict(zip(names, values, strict=True))

    def _delete(self, connection: Any, table: str, names: tuple[str, ...], keys: Iterable[tuple[str, ...]]) -> None:
        query = sql.SQL("DELETE FROM {} WHERE {}").format(
            sql.Identifier(self.options.schema, table),
            sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in names),
        )
        with connection.cursor() as cursor:
            cursor.executemany(query, list(keys))
