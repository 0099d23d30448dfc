"""LangGraph's `SqliteStore`, and the checkpoints that may lie beside it: `langgraph:FILE`.

    store            memories: prefix (the namespace, joined by dots), key, value (JSON), created_at, expires_at, …
    store_vectors    a vector a field; SQLite's foreign keys are off, so that a deleted memory leaves them
    checkpoints      the state of every thread, and with it what was read into it
    writes           what nodes wrote into it

LangGraph itself is not imported: its store cannot be opened by a Python without loadable extensions, and a search may
move the expiry of what it finds. `created_at` is that of the last `put`. A state is one value: where a thread's holds a
removed text, all of the thread goes, as `delete_thread` of LangGraph does it.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from memory_audit.errors import UsageError
from memory_audit.integrations.langgraph import record_of
from memory_audit.integrations.record import id_within, parts_of, utc_ms
from memory_audit.jobs.connect import sqlite_file
from memory_audit.jobs.connect.connector import MEMORIES, MIN_QUOTED, Facts, Removed, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from memory_audit.integrations.record import Record

__all__ = ["LangGraph", "Options"]

STORE = ("prefix", "key", "value", "created_at", "updated_at", "expires_at", "ttl_minutes")
VECTORS = ("prefix", "key", "field_name", "embedding", "created_at", "updated_at")
CHECKPOINTS = (
    "thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint", "metadata",
)  # fmt: skip
WRITES = (
    "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel", "type", "value",
)  # fmt: skip
TABLES = {"store": STORE, "store_vectors": VECTORS, "checkpoints": CHECKPOINTS, "writes": WRITES}
COUNTERS = {"store_migrations": ("v",), "vector_migrations": ("v",)}


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `--option` may say."""

    text: str | None = None
    """Field of a value that is what the agent is shown; default: the first of TEXT_FIELDS, else the value as JSON."""


class LangGraph:
    """A database of LangGraph's."""

    kind = "sqlite"
    facts = Facts(
        written_for="langgraph-checkpoint-sqlite 3.1.2, langgraph 1.2.24",
        vouched=MappingProxyType({
            "record_id": "caller", "text": "caller", "owner": "caller", "writer": "nobody", "created_at_ms": "system",
            "metadata": "caller",
        }),
        unreachable=(
            "Copies and backups of the file, and snapshots of its file system.",
            "Freed blocks of the file system or the disk, where a file was rewritten.",
            "Traces and logs of the agent, and what its model provider keeps.",
        ),
        restart=("Start threads anew whose state is held in a process: what it read stays in its context.",),
        guard_point="batch and abatch of the store, by a store that wraps it",
    )  # fmt: skip

    known: ClassVar[Mapping[str, tuple[str, ...]]] = TABLES
    states: ClassVar[Mapping[str, tuple[str, ...]]] = {"checkpoints": ("checkpoint", "metadata"), "writes": ("value",)}
    """Of a thread: tables, and the columns that hold what was read."""

    def __init__(self, place: str, options: Options) -> None:
        self.place = place
        self.options = options

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        with self._reading() as connection:
            return f"langgraph {self.kind}, {', '.join(self._tables(connection))}"

    def records(self) -> Iterator[Record]:
        """Yield all memories, expired ones too, by namespace and key."""
        with self._reading() as connection:
            self._tables(connection)
            for row in self._rows(connection, "store"):
                yield self._record(row)

    def hold(self) -> AbstractContextManager[None]:
        """Hold nothing: each change is one transaction, and an agent sees the change at once."""
        return nullcontext()

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every row of every table."""
        with self._reading() as connection:
            tables = self._tables(connection)
            threads = self._threads(connection, tables, removed)
            for table in tables:
                for row in self._rows(connection, table):
                    raw = json.dumps(row, default=_hex).encode()
                    goes = _goes(table, row, removed, threads)
                    yield Row(layer=MEMORIES if table == "store" else table, raw=raw, kept=None if goes else raw)

    def delete(self, removed: Removed) -> None:
        """Delete the memories."""
        with self._writing() as connection:
            self._delete(connection, "store", ("prefix", "key"), map(parts_of, removed.ids))

    def clean(self, removed: Removed) -> None:
        """Delete their vectors, and every thread whose state holds one of the texts."""
        with self._writing() as connection:
            tables = self._tables(connection)
            if "store_vectors" in tables:
                self._delete(connection, "store_vectors", ("prefix", "key"), map(parts_of, removed.ids))
            threads = [(thread,) for thread in self._threads(connection, tables, removed)]
            for table in tables.keys() & self.states.keys():
                self._delete(connection, table, ("thread_id",), threads)

    def erase(self) -> None:
        """Rewrite the file."""
        sqlite_file.erase(Path(self.place))

    def files(self) -> Iterator[Path]:
        """Yield the file, and what lies beside it."""
        yield from sqlite_file.files_of(Path(self.place))

    def _reading(self) -> AbstractContextManager[Any]:
        return sqlite_file.reading(Path(self.place))

    def _writing(self) -> AbstractContextManager[Any]:
        return sqlite_file.writing(Path(self.place))

    def _columns(self, connection: Any) -> dict[str, tuple[str, ...]]:
        return sqlite_file.columns(connection)

    def _rows(self, connection: Any, table: str) -> Iterator[dict[str, Any]]:
        names = self.known[table]
        for values in connection.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY 1, 2, 3"):  # noqa: S608 - of TABLES
            yield dict(zip(names, values, strict=True))

    def _delete(self, connection: Any, table: str, names: tuple[str, ...], keys: Iterable[tuple[str, ...]]) -> None:
        where = " AND ".join(f"{name} = ?" for name in names)
        connection.executemany(f"DELETE FROM {table} WHERE {where}", keys)  # noqa: S608 - of TABLES

    def _tables(self, connection: Any) -> dict[str, None]:
        """Return those of `known` that are there, in that order.

        Raises:
            UsageError: others, or other columns.
        """
        found = self._columns(connection)
        known = {**self.known, **COUNTERS}
        odd = [name for name, names in found.items() if known.get(name) != names]
        if odd or "store" not in found:
            told = f"table {odd[0]!r:.80} is unknown or has other columns" if odd else "no table `store`"
            raise UsageError(f"{self.place}: {told}; expected {self.facts.written_for}")
        return {name: None for name in self.known if name in found}

    def _threads(self, connection: Any, tables: Mapping[str, None], removed: Removed) -> set[str]:
        """Return the threads whose state holds a removed text: msgpack has it as it is, JSON in the other spelling."""
        wanted = [text.encode() for text in removed.texts if len(text) >= MIN_QUOTED]
        found = set()
        for table, columns in self.states.items():
            for row in self._rows(connection, table) if table in tables else ():
                held = [_bytes(row[name]) for name in columns]
                if row["thread_id"] not in found and any(part in value for value in held for part in wanted):
                    found.add(row["thread_id"])
        return found

    def _record(self, row: dict[str, Any]) -> Record:
        where = f"{self.place}: {row['prefix']!r:.80}, {row['key']!r:.80}"
        try:
            value = json.loads(row["value"])
        except (ValueError, RecursionError):
            raise UsageError(f"{where}: the value is no JSON") from None
        made = utc_ms(row["created_at"])
        return record_of(row["prefix"], row["key"], value, text=self.options.text, created_at_ms=made)


def _goes(table: str, row: dict[str, Any], removed: Removed, threads: set[str]) -> bool:
    if table in {"store", "store_vectors"}:
        return id_within(row["prefix"], row["key"]) in removed.ids
    return row["thread_id"] in threads


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)
