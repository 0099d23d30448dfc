"""The folder of a persistent Chroma (`chromadb.PersistentClient(path=…)`), without that client.

    FOLDER/chroma.sqlite3
        collections, segments, databases    which collection has which segments
        embeddings, embedding_metadata(_array)    documents: ids, and all that was said of them
        embedding_fulltext_search           the documents again, with an index of their letters
        embeddings_queue                    every write since the vectors were last written to disk, with its text
        max_seq_id                          how far each segment has read the queue
    FOLDER/SEGMENT/                         vectors (`memory_audit.jobs.connect.chroma_index`)

Opening a client writes to the file; reading does not. A deletion is what Chroma makes it: the rows go, and a record of
it joins the queue, which every open index reads before it answers. That record stays: Chroma numbers writes from the
last one in the queue, and passes over numbers that it has seen.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.jobs.connect import chroma_index, open_files, sqlite_file
from memory_audit.jobs.connect.connector import MEMORIES, Removed, Row

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["DATABASE", "DOCUMENT", "RESTART", "ChromaFolder", "Collection", "Going", "Item"]

DATABASE = "chroma.sqlite3"
RESTART = (
    "Restart every process with the folder open: it may answer with removed ids, and write vectors again.",
    "Only processes of this user on this machine were looked at.",
)
"""For `Facts`: Chroma takes no lock."""

DOCUMENT = "chroma:document"
"""Key of a document's text among its metadata."""

QUEUE, SEARCH, VECTORS = "write queue", "full-text search", "vectors"
LEFT = "leftovers of deleted documents"
"""What Chroma itself leaves: vectors that are marked as deleted, and rows of earlier releases."""

VALUES = ("string_value", "int_value", "float_value", "bool_value")
TABLES = {
    "databases": ("id", "name", "tenant_id"),
    "collections": ("id", "name", "dimension", "database_id", "config_json_str", "schema_str"),
    "segments": ("id", "type", "scope", "collection"),
    "embeddings": ("id", "segment_id", "embedding_id", "seq_id", "created_at"),
    "embedding_metadata": ("id", "key", *VALUES),
    "embedding_metadata_array": ("id", "key", *VALUES),
    "embedding_fulltext_search": ("string_value",),
    "embeddings_queue": ("seq_id", "created_at", "operation", "topic", "id", "vector", "encoding", "metadata"),
    "max_seq_id": ("segment_id", "seq_id"),
}
"""Of chromadb 1.5."""

OTHERS = frozenset({
    "migrations", "acquire_write", "collection_metadata", "segment_metadata", "tenants", "maintenance_log",
    "embeddings_queue_config", *(f"embedding_fulltext_search_{part}" for part in (
        "data", "idx", "content", "docsize", "config",
    )),
})  # fmt: skip
"""Without memories, or read by SQLite itself."""

KINDS = {
    "METADATA": "urn:chroma:segment/metadata/sqlite", "VECTOR": "urn:chroma:segment/vector/hnsw-local-persisted",
}  # fmt: skip
TOPIC = "persistent://default/default/"
DELETE = 3
"""The operation of a deletion in the queue."""

DETAILS = {"embedding_metadata": "id", "embedding_metadata_array": "id", "embedding_fulltext_search": "rowid"}
"""Tables of what is said of a document, and their column with its row."""

IS_LEFT = "NOT IN (SELECT id FROM embeddings)"
NOTE_DELETION = (
    "INSERT INTO embeddings_queue (seq_id, operation, topic, id, metadata) SELECT 1 + max("
    "(SELECT ifnull(max(seq_id), 0) FROM embeddings_queue), (SELECT ifnull(max(seq_id), 0) FROM max_seq_id)), "
    "?, ?, ?, '{}'"
)

_NAME = re.compile("[0-9a-f-]{36}")
"""Of a segment, and so of a folder."""


Going = Mapping[str, AbstractSet[str]]
"""Collection to the ids of the documents that go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A collection and its segments."""

    name: str
    database: str
    collection_id: str
    documents: str
    """Segment of its rows."""

    vectors: str
    """Segment, and folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A document."""

    collection: str
    name: str
    created_at: str
    """UTC, whole seconds, set by Chroma; it stays when the document is written again."""

    fields: Mapping[str, Any]
    """What was said of it, the text under DOCUMENT."""

    @property
    def raw(self) -> bytes:
        """All of it; the vector is another row."""
        return _raw(self.collection, self.name, self.created_at, dict(self.fields))


class ChromaFolder:
    """A folder, and the collections of it that are read."""

    def __init__(self, folder: Path, chosen: Callable[[list[Collection]], Iterable[Collection]]) -> None:
        self.folder = folder
        self.database = folder / DATABASE
        self._chosen = chosen

    def check(self) -> None:
        """Look whether all is as it is known.

        Raises:
            UsageError: tables, segments or an index of another form; see `chosen`.
        """
        with sqlite_file.reading(self.database) as connection:
            for collection in self._collections(connection).values():
                with chroma_index.opened(self.folder / collection.vectors):
                    pass

    def names(self) -> list[str]:
        """Return the names of the collections that are read. Raises like `check`."""
        with sqlite_file.reading(self.database) as connection:
            return list(self._collections(connection))

    def items(self) -> Iterator[Item]:
        """Yield all documents, in the order in which they were first written. Raises like `check`."""
        with sqlite_file.reading(self.database) as connection:
            yield from self._items(connection, self._collections(connection))

    def rows(
        self, removed: Removed, going: Going, edited: Callable[[Item], Item] = lambda item: item,
        layer: Callable[[str], str] = lambda _: MEMORIES,
    ) -> Iterator[Row]:  # fmt: skip
        """Yield every row of the documents, the search, the queue, and the vectors.

        Args:
            removed: Whose texts go from the queue.
            going: Which documents go.
            edited: What is to stay of another one.
            layer: Of the documents of a collection.
        """
        with sqlite_file.reading(self.database) as connection:
            collections = self._collections(connection)
            for item in self._items(connection, collections):
                goes = item.name in going.get(item.collection, ())
                yield Row(layer=layer(item.collection), raw=item.raw, kept=None if goes else edited(item).raw)
            yield from self._search(connection, collections, going)
            for _, name, document, parts in self._queue(connection, collections):
                left = _raw(name, document, *parts[:-1], _stripped(parts[-1], removed))
                goes = document in going.get(name, ())
                yield Row(layer=QUEUE, raw=_raw(name, document, *parts), kept=None if goes else left)
            for table, key in DETAILS.items():
                asked = f"SELECT * FROM {table} WHERE {key} {IS_LEFT}"  # noqa: S608 - of DETAILS
                for values in connection.execute(asked):
                    yield Row(layer=LEFT, raw=_raw(table, *values), kept=None)
            for collection in collections.values():
                yield from self._vectors(connection, collection, going)

    def delete(self, going: Going) -> None:
        """Delete documents, as Chroma does it, and all earlier writes of them that wait in the queue."""
        with sqlite_file.writing(self.database) as connection:
            collections = self._collections(connection)
            topics = {
                TOPIC + collections[name].collection_id: (collections[name].documents, documents)
                for name, documents in going.items() if name in collections
            }  # fmt: skip
            waiting: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
            columns = ("operation", "topic", "id")
            for number, operation, topic, document in sqlite_file.rows(connection, "embeddings_queue", columns):
                if topic in topics and document in topics[topic][1]:
                    waiting[topic, document].append((number, operation))
            for topic, (segment, documents) in topics.items():
                for document in sorted(documents):
                    row, writes = _row_of(connection, segment, document), waiting[topic, document]
                    if row is not None or (writes and writes[-1][1] != DELETE):
                        connection.execute(NOTE_DELETION, (DELETE, topic, document))
                    _delete(connection, "embeddings_queue", (number for number, kind in writes if kind != DELETE))
                    for table in (*DETAILS, "embeddings"):
                        _delete(connection, table, () if row is None else (row,))

    def unlist(self, collection: str, key: str, values: Iterable[str]) -> None:
        """Take values out of a list that documents of a collection have."""
        with sqlite_file.writing(self.database) as connection:
            segment = self._collections(connection)[collection].documents
            connection.executemany(
                "DELETE FROM embedding_metadata_array WHERE key = ? AND string_value = ? AND id IN ("
                "SELECT id FROM embeddings WHERE segment_id = ?)",
                [(key, value, segment) for value in sorted(values)],
            )

    def clean(self, removed: Removed) -> None:
        """Take texts out of what waits in the queue, and whatever is left of deleted documents."""
        with sqlite_file.writing(self.database) as connection:
            collections = self._collections(connection)
            changed = [
                (left, number)
                for number, _, _, parts in self._queue(connection, collections)
                if (left := _stripped(parts[-1], removed)) != parts[-1]
            ]
            connection.executemany("UPDATE embeddings_queue SET metadata = ? WHERE seq_id = ?", changed)
            for table, key in DETAILS.items():
                connection.execute(f"DELETE FROM {table} WHERE {key} {IS_LEFT}")  # noqa: S608 - of DETAILS
            for collection in collections.values():
                chroma_index.overwrite(self.folder / collection.vectors, _live(connection, collection))

    def erase(self) -> None:
        """Rewrite the file, with the index of letters, in which deleted documents are struck out and stay.

        Of the folders of vectors, room for more is blanked, and those of deleted collections go, which Chroma leaves.
        """
        with sqlite_file.writing(self.database) as connection:
            connection.execute("INSERT INTO embedding_fulltext_search(embedding_fulltext_search) VALUES ('rebuild')")
            known = {name for (name,) in connection.execute("SELECT id FROM segments")}
            for folder in self.folder.iterdir():
                if not _NAME.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
                    continue
                files = [path for path in folder.iterdir() if path.name in chroma_index.FILES]
                if folder.name in known:
                    chroma_index.blank(folder)
                elif len(files) == len(list(folder.iterdir())):
                    for path in files:
                        path.unlink()
                    folder.rmdir()
        sqlite_file.erase(self.database)

    def hold(self) -> AbstractContextManager[None]:
        """Look whether another process has a file of the folder open. Raises like `open_files.closed`."""
        return open_files.closed(self.folder, self.files())

    def files(self) -> Iterator[Path]:
        """Yield every file of the folder."""
        yield from (path for path in sorted(self.folder.rglob("*")) if path.is_file())

    def _collections(self, connection: sqlite3.Connection) -> dict[str, Collection]:
        """Return the collections that are read, by their name. Raises like `check`."""
        found = sqlite_file.columns(connection)
        unknown = [
            name for name in sorted(found.keys() - OTHERS | TABLES.keys()) if found.get(name) != TABLES.get(name)
        ]
        if unknown:
            raise UsageError(
                f"{self.database}: table {unknown[0]!r:.80} has {found.get(unknown[0])!s:.200}: of an unknown chromadb"
            )
        segments: dict[str, dict[str, str]] = defaultdict(dict)
        for name, kind, scope, collection in connection.execute("SELECT id, type, scope, collection FROM segments"):
            if KINDS.get(scope) != kind or not _NAME.fullmatch(name):
                raise UsageError(f"{self.database}: segment {name!r:.60} of kind {kind!r:.80}: of an unknown chromadb")
            segments[collection][scope] = name
        asked = "SELECT c.name, d.name, c.id FROM collections c JOIN databases d ON d.id = c.database_id ORDER BY c.id"
        every = []
        for name, database, number in connection.execute(asked).fetchall():
            parts = segments[number]
            if parts.keys() != KINDS.keys():
                raise UsageError(f"{self.database}: collection {name!r:.80} lacks a segment: of an unknown chromadb")
            every.append(
                Collection(
                    name=name, database=database, collection_id=number, documents=parts["METADATA"],
                    vectors=parts["VECTOR"],
                )
            )  # fmt: skip
        return {collection.name: collection for collection in self._chosen(every)}

    def _items(self, connection: sqlite3.Connection, collections: Mapping[str, Collection]) -> Iterator[Item]:
        names = {collection.documents: collection.name for collection in collections.values()}
        last = -1
        while page := _page(connection, last):
            for _, segment, name, created_at, fields in page:
                if segment in names:
                    yield Item(collection=names[segment], name=name, created_at=created_at, fields=fields)
            last = page[-1][0]

    @staticmethod
    def _search(connection: sqlite3.Connection, collections: Mapping[str, Collection], going: Going) -> Iterator[Row]:
        names = {collection.documents: collection.name for collection in collections.values()}
        for row, text in sqlite_file.rows(connection, "embedding_fulltext_search", ("string_value",)):
            asked = "SELECT segment_id, embedding_id FROM embeddings WHERE id = ?"
            found = connection.execute(asked, (row,)).fetchone()
            if found is not None and (name := names.get(found[0])) is not None:
                raw = _raw(name, found[1], text)
                yield Row(layer=SEARCH, raw=raw, kept=None if found[1] in going.get(name, ()) else raw)

    def _vectors(self, connection: sqlite3.Connection, collection: Collection, going: Going) -> Iterator[Row]:
        is_live = _live(connection, collection)
        with chroma_index.opened(self.folder / collection.vectors) as index:
            for element in index:
                raw = _raw(collection.name, element.name, element.vector.hex())
                if is_live(element):
                    goes = element.name in going.get(collection.name, ())
                    yield Row(layer=VECTORS, raw=raw, kept=None if goes else raw)
                elif element.vector != index.stand_in(element, is_live):
                    yield Row(layer=LEFT, raw=raw, kept=None)

    @staticmethod
    def _queue(
        connection: sqlite3.Connection, collections: Mapping[str, Collection]
    ) -> Iterator[tuple[int, str, str, tuple[Any, ...]]]:
        """Yield number, collection, id and the rest of what waits in the queue, but for deletions."""
        names = {TOPIC + collection.collection_id: collection.name for collection in collections.values()}
        columns = ("topic", "id", "operation", "hex(vector)", "encoding", "metadata")
        for number, topic, document, operation, *rest in sqlite_file.rows(connection, "embeddings_queue", columns):
            if topic in names and operation != DELETE:
                yield number, names[topic], document, (operation, *rest)


def _page(connection: sqlite3.Connection, last: int) -> list[tuple[int, str, str, str, dict[str, Any]]]:
    """Return some rows after one, each with all that was said of it at that moment."""
    connection.execute("BEGIN")
    try:
        page = connection.execute(
            "SELECT id, segment_id, embedding_id, created_at FROM embeddings WHERE id > ? ORDER BY id LIMIT ?",
            (last, sqlite_file.PAGE),
        ).fetchall()
        fields: dict[int, dict[str, Any]] = defaultdict(dict)
        bounds = (page[0][0], page[-1][0]) if page else (0, -1)
        asked = f"SELECT id, key, coalesce({', '.join(VALUES)}), bool_value FROM {{}} WHERE id BETWEEN ? AND ?"  # noqa: S608 - of VALUES
        arrays = asked.format("embedding_metadata_array") + " ORDER BY rowid"
        for row, key, value, flag in connection.execute(arrays, bounds):
            fields[row].setdefault(key, []).append(value if flag is None else bool(flag))
        for row, key, value, flag in connection.execute(asked.format("embedding_metadata"), bounds):
            fields[row][key] = value if flag is None else bool(flag)
    finally:
        connection.execute("COMMIT")
    return [(*columns, fields[columns[0]]) for columns in page]


def _row_of(connection: sqlite3.Connection, segment: str, document: str) -> int | None:
    asked = "SELECT id FROM embeddings WHERE segment_id = ? AND embedding_id = ?"
    found = connection.execute(asked, (segment, document)).fetchone()
    return None if found is None else int(found[0])


def _live(connection: sqlite3.Connection, collection: Collection) -> Callable[[chroma_index.Element], bool]:
    """Return what tells whether a vector is that of a document."""
    return lambda element: (
        element.name is not None and _row_of(connection, collection.documents, element.name) is not None
    )


def _delete(connection: sqlite3.Connection, table: str, rows: Iterable[int]) -> None:
    key = {**DETAILS, "embeddings": "id", "embeddings_queue": "seq_id"}[table]
    connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", ((row,) for row in rows))  # noqa: S608 - as above


def _stripped(metadata: str | None, removed: Removed) -> str | None:
    """Return what a write in the queue says of its document, without what quotes a removed text."""
    if metadata is None:
        return None
    said = outside_json.decode(metadata.encode(), "embeddings_queue")
    left = {
        key: value for key, value in said.items()
        if not any(map(removed.is_in, value if isinstance(value, list) else (value,)))
    }  # fmt: skip
    return metadata if left == said else json.dumps(left, ensure_ascii=False)


def _raw(*values: object) -> bytes:
    return json.dumps(values, sort_keys=True).encode()
