"""Collections of a local Qdrant, and of frameworks on one: `qdrant:FOLDER`, what `QdrantClient(path=…)` is given.

    FOLDER/collection/NAME/storage.sqlite    points, each an id, a payload and vectors

The client is not imported. A point's payload means what its writer says: the text is looked for under the names that
the client itself, LangChain, Haystack, mem0 and others use, or under that of --option text=. Ids, texts and owners are
the word of whoever wrote the point; Qdrant keeps no time.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.integrations.record import id_within
from memory_audit.jobs.connect import documents, qdrant_points, sqlite_file
from memory_audit.jobs.connect.connector import MEMORIES, Facts, Removed, Row
from memory_audit.jobs.connect.documents import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from memory_audit.integrations.record import Record

__all__ = ["Options", "Qdrant"]


class Qdrant:
    """A folder of a local Qdrant."""

    facts = Facts(
        written_for="qdrant-client 1.20.0",
        vouched=MappingProxyType({
            "record_id": "caller", "text": "caller", "owner": "caller", "writer": "nobody", "created_at_ms": "nobody",
            "metadata": "caller",
        }),
        unreachable=(
            "Copies and backups of the folder, and snapshots of its file system.",
            "Freed blocks of the file system or the disk, where a file was rewritten.",
            "What a framework keeps beside the folder, such as whole documents that the points are parts of.",
            "Traces and logs of the agent, and what its model provider keeps.",
        ),
        guard_point="upsert, set_payload and overwrite_payload of the local collection, which the rest calls",
    )  # fmt: skip

    def __init__(self, place: str, options: Options) -> None:
        self.folder = Path(place)
        self.options = options

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        for _, storage in self._storages():
            with sqlite_file.reading(storage) as connection:
                next(qdrant_points.points(connection, storage), None)
        return "local Qdrant, points v1"

    def records(self) -> Iterator[Record]:
        """Yield all memories, by collection and the time of their last write."""
        for name, storage in self._storages():
            with sqlite_file.reading(storage) as connection:
                for point in qdrant_points.points(connection, storage):
                    where = f"{storage}: row {point.row}"
                    record = documents.read(self.options, name, point.point_id, point.payload, where)
                    if record is not None:
                        yield record

    def hold(self) -> AbstractContextManager[None]:
        """Take the lock of the folder, as the agent's client does."""
        return qdrant_points.held(self.folder)

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every point, also those that a later one of the same id hides."""
        for name, storage in self._storages():
            for row in qdrant_points.rows(storage, MEMORIES, _kept(name, removed)):
                place = id_within(name, "").encode()  # the same point in two collections is two rows
                yield Row(layer=row.layer, raw=place + row.raw, kept=row.kept and place + row.kept)

    def delete(self, removed: Removed) -> None:
        """Delete the points."""
        for name, storage in self._storages():
            qdrant_points.rewrite(storage, _kept(name, removed))

    def clean(self, removed: Removed) -> None:
        """Do nothing: there are no side tables."""

    def erase(self) -> None:
        """Rewrite the file of every collection, those that are not read as memories too."""
        for name in qdrant_points.collections(self.folder):
            sqlite_file.erase(qdrant_points.storage_of(self.folder, name))

    def files(self) -> Iterator[Path]:
        """Yield every file of the folder."""
        yield from (path for path in sorted(self.folder.rglob("*")) if path.is_file())

    def _storages(self) -> list[tuple[str, Path]]:
        """Return the collections that are read, each with its file."""
        names = documents.chosen(self.options, qdrant_points.collections(self.folder), self.folder)
        return [(name, qdrant_points.storage_of(self.folder, name)) for name in names]


def _kept(collection: str, removed: Removed) -> Callable[[qdrant_points.Point], bytes | None]:
    return lambda point: None if id_within(collection, point.point_id) in removed.ids else point.raw
