"""mem0 (open source): `mem0:FOLDER`, the `path` of its vector store's configuration, a local Qdrant or a Chroma.

    collection mem0             memories: payload data, user_id, agent_id, run_id, created_at, …
    collection mem0_entities    entities, each with the ids of the memories it was found in
    history.db                  history (all texts a memory ever had), messages (raw turns)

mem0 itself is not imported: it would ask for models, send telemetry and lock the folder. Its `created_at`, owners and
role may have been set by whoever wrote the memory. The extractor is given the last ten raw messages of an owner, so
that a removed memory comes back from there: `messages` is a side table like `history`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from memory_audit.errors import UsageError
from memory_audit.integrations.mem0 import record_of
from memory_audit.jobs.connect import sqlite_file
from memory_audit.jobs.connect.connector import Facts, Removed, Row
from memory_audit.jobs.connect.mem0_vectors import vectors_in

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from memory_audit.integrations.record import Record


__all__ = ["Mem0", "Options"]

NONE = "none"
HISTORY = {
    "history": (
        "id", "memory_id", "old_memory", "new_memory", "event", "created_at", "updated_at", "is_deleted", "actor_id",
        "role",
    ),
    "messages": ("id", "session_scope", "role", "content", "name", "created_at"),
}  # fmt: skip


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `--option` may say."""

    collection: str | None = None
    """Default: the folder's only one."""

    history: str | None = None
    """Path of history.db, `history_db_path` in mem0's configuration; default: in the folder, else ~/.mem0. `none`: the
    agent keeps none."""


class Mem0:
    """A mem0 store."""

    facts = Facts(
        written_for="mem0ai 2.2.1, qdrant-client 1.20.0, chromadb 1.5.9",
        vouched=MappingProxyType({
            "record_id": "system", "text": "model", "owner": "caller", "writer": "caller", "created_at_ms": "caller",
            "metadata": "caller",
        }),
        unreachable=(
            "Copies and backups of the folder and of history.db, and snapshots of their file system.",
            "Freed blocks of the file system or the disk, where a file was rewritten.",
            "Traces and logs of the agent, and what its model provider keeps.",
        ),
        guard_point="vector_store.insert, vector_store.update and db.save_messages of the Memory object",
    )  # fmt: skip

    def __init__(self, place: str, options: Options) -> None:
        self.folder = Path(place)
        self.options = options
        self.vectors = vectors_in(self.folder, options.collection)
        self.facts = replace(self.facts, restart=self.vectors.restart)

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        self.vectors.check()
        self._history(needed=False)
        return f"mem0 2 over {self.vectors.kind}"

    def records(self) -> Iterator[Record]:
        """Yield all memories, in the order of their vector store."""
        for name, payload, where in self.vectors.memories():
            yield record_of(name, payload, where)

    def hold(self) -> AbstractContextManager[None]:
        """Keep the agent out of the vector store, or look whether it has that open."""
        return self.vectors.hold()

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every row of the vector store and of history.db."""
        yield from self.vectors.rows(removed)
        if (history := self._history()) is not None:
            with sqlite_file.reading(history) as connection:
                for layer, names in HISTORY.items():
                    for _, row in _rows(connection, layer, names):
                        kept = _kept_row(layer, row, removed)
                        yield Row(layer=layer, raw=_raw(row), kept=None if kept is None else _raw(kept))

    def delete(self, removed: Removed) -> None:
        """Delete the memories."""
        self.vectors.delete(removed)

    def clean(self, removed: Removed) -> None:
        """Clean history.db, and the side tables of the vector store: entities, and what that keeps besides."""
        history = self._history()
        self.vectors.clean(removed)
        if history is None:
            return
        with sqlite_file.writing(history) as connection:
            for layer, names in HISTORY.items():
                for number, row in list(_rows(connection, layer, names)):
                    kept = _kept_row(layer, row, removed)
                    if kept is None:
                        connection.execute(f"DELETE FROM {layer} WHERE rowid = ?", (number,))  # noqa: S608 - of HISTORY
                    elif kept != row:
                        connection.execute(
                            "UPDATE history SET old_memory = ?, new_memory = ? WHERE rowid = ?",
                            (kept["old_memory"], kept["new_memory"], number),
                        )

    def erase(self) -> None:
        """Rewrite every file."""
        self.vectors.erase()
        if (history := self._history()) is not None:
            sqlite_file.erase(history)

    def files(self) -> Iterator[Path]:
        """Yield every file of the folder, and history.db with what lies beside it."""
        below = [path for path in sorted(self.folder.rglob("*")) if path.is_file()]
        yield from below
        if (history := self._history()) is not None:
            yield from (file for file in sqlite_file.files_of(history) if file not in below)

    def _history(self, *, needed: bool = True) -> Path | None:
        """Return history.db; None where there is none, and none is needed.

        Raises:
            UsageError: it is needed and not found; or it is of another form.
        """
        given = self.options.history
        places = [Path(given)] if given else [self.folder / "history.db", Path.home() / ".mem0" / "history.db"]
        found = next((place for place in places if place.exists()), None)
        if given == NONE:
            return None
        if found is None:
            if needed:
                raise UsageError(
                    f"{places[0]}: no history of mem0 there; name it with --option history=FILE, or history={NONE}"
                )
            return None
        with sqlite_file.reading(found) as connection:
            tables = sqlite_file.columns(connection)
        if tables != HISTORY:
            raise UsageError(f"{found}: tables {tables!s:.300}, expected those of mem0 2: {', '.join(HISTORY)}")
        return found


def _rows(connection: sqlite3.Connection, table: str, names: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, *values in sqlite_file.rows(connection, table, names):
        yield number, dict(zip(names, values, strict=True))


def _kept_row(layer: str, row: dict[str, Any], removed: Removed) -> dict[str, Any] | None:
    """Return what is to stay of a row of history.db.

    An agent's own texts go with the memory they became. Of another memory's history, the text alone goes that it had in
    common: it was made of what is removed, or became it.
    """
    if layer == "messages":
        scopes = {_scope(record) for record in removed.records} if removed.context else set()
        return None if removed.is_in(row["content"]) or row["session_scope"] in scopes else row
    if row["memory_id"] in removed.ids:
        return None
    quoted = {name: None for name in ("old_memory", "new_memory") if removed.is_in(row[name])}
    return {**row, **quoted} if quoted else row


def _scope(record: Record) -> str:
    """Return what mem0 keeps the raw messages of an owner under."""
    escaped = (
        (name, value.replace("%", "%25").replace("&", "%26").replace("=", "%3D")) for name, value in record.owner
    )
    return "&".join(f"{name}={value}" for name, value in sorted(escaped))


def _raw(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=True, default=repr).encode()
