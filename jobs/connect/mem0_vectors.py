"""Where mem0 keeps memories and entities: two collections of a local Qdrant, or of a persistent Chroma."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from memory_audit.errors import UsageError
from memory_audit.jobs.connect import qdrant_points, sqlite_file
from memory_audit.jobs.connect.chroma_folder import DATABASE, RESTART, ChromaFolder, Collection, Item
from memory_audit.jobs.connect.connector import MEMORIES, Removed, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["Vectors", "vectors_in"]

LINKS = "linked_memory_ids"
"""Of an entity: the memories that it was found in."""

ENTITIES = "_entities"
"""After the name of a collection: that of its entities."""

ENTITY_LAYER = "entities"
TELEMETRY = "mem0migrations"
"""A collection of mem0's own, without memories."""


class Vectors(Protocol):
    """A vector store of mem0's; methods as those of `Connector`."""

    kind: str
    restart: tuple[str, ...]

    def check(self) -> None:
        """Look whether all is as it is known. Raises like `Source.schema`."""

    def memories(self) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        """Yield id, payload and place, for messages, of each memory."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep the agent out."""

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every row."""

    def delete(self, removed: Removed) -> None:
        """Delete the memories."""

    def clean(self, removed: Removed) -> None:
        """Clean the links of entities; an entity that no memory is left of goes."""

    def erase(self) -> None:
        """Rewrite every file."""


def vectors_in(folder: Path, collection: str | None) -> Vectors:
    """Return what a folder has; nothing is read yet."""
    return InChroma(folder, collection) if (folder / DATABASE).exists() else InQdrant(folder, collection)


class InQdrant:
    """A local Qdrant."""

    kind = "local Qdrant, points v1"
    restart: tuple[str, ...] = ()

    def __init__(self, folder: Path, collection: str | None) -> None:
        self.folder = folder
        self.collection = collection

    def check(self) -> None:
        """Look at the points of the memories."""
        storage, _ = self._storages()[0]
        with sqlite_file.reading(storage) as connection:
            next(qdrant_points.points(connection, storage), None)

    def memories(self) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        """Yield memories by the time of their last write."""
        storage, _ = self._storages()[0]
        with sqlite_file.reading(storage) as connection:
            for point in qdrant_points.points(connection, storage):
                yield point.point_id, point.payload, f"{storage}: row {point.row}"

    def hold(self) -> AbstractContextManager[None]:
        """Take the lock of the folder, as the agent's client does."""
        return qdrant_points.held(self.folder)

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every point."""
        for storage, layer in self._storages():
            yield from qdrant_points.rows(storage, layer, _kept_points(layer, removed))

    def delete(self, removed: Removed) -> None:
        """Delete the points of the memories, also those that a later one of the same id hides."""
        storage, layer = self._storages()[0]
        qdrant_points.rewrite(storage, _kept_points(layer, removed))

    def clean(self, removed: Removed) -> None:
        """Clean the entities."""
        for storage, layer in self._storages()[1:]:
            qdrant_points.rewrite(storage, _kept_points(layer, removed))

    def erase(self) -> None:
        """Rewrite the files of both collections."""
        for storage, _ in self._storages():
            sqlite_file.erase(storage)

    def _storages(self) -> list[tuple[Path, str]]:
        """Return the file of the memories, and that of their entities where there is one, with their layers."""
        names = qdrant_points.collections(self.folder)
        memories = _of_memories(names, self.collection, self.folder)
        found = [(memories, MEMORIES), (memories + ENTITIES, ENTITY_LAYER)]
        return [(qdrant_points.storage_of(self.folder, name), layer) for name, layer in found if name in names]


class InChroma:
    """A persistent Chroma."""

    kind = "Chroma 1.5"
    restart: tuple[str, ...] = RESTART

    def __init__(self, folder: Path, collection: str | None) -> None:
        self.collection = collection
        self.chroma = ChromaFolder(folder, self._both)

    def check(self) -> None:
        """Look at tables and vectors."""
        self.chroma.check()

    def memories(self) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        """Yield memories in the order in which they were first written."""
        for item in self.chroma.items():
            if _layer(item.collection) == MEMORIES:
                yield item.name, item.fields, f"{self.chroma.database}: {item.name!r:.80}"

    def hold(self) -> AbstractContextManager[None]:
        """Look whether another process has the folder open."""
        return self.chroma.hold()

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every row of the database, and every vector on disk."""
        going = {**self._entities(removed)[0], **self._memories(removed)}
        yield from self.chroma.rows(removed, going, lambda item: _without_links(item, removed), _layer)

    def delete(self, removed: Removed) -> None:
        """Delete the memories, and what of them waits in the queue."""
        self.chroma.delete(self._memories(removed))

    def clean(self, removed: Removed) -> None:
        """Clean the entities, the queue, and the vectors."""
        going, linked = self._entities(removed)
        self.chroma.delete(going)
        for name in linked:
            self.chroma.unlist(name, LINKS, removed.ids)
        self.chroma.clean(removed)

    def erase(self) -> None:
        """Rewrite the database, and blank or remove what lies unused in the folders of vectors."""
        self.chroma.erase()

    def _memories(self, removed: Removed) -> dict[str, frozenset[str]]:
        return {name: removed.ids for name in self.chroma.names() if _layer(name) == MEMORIES}

    def _entities(self, removed: Removed) -> tuple[dict[str, set[str]], set[str]]:
        """Return the entities that no memory is left of, and the collections of those that lose a link."""
        going: dict[str, set[str]] = {}
        linked: set[str] = set()
        for item in self.chroma.items():
            if _layer(item.collection) == ENTITY_LAYER and (left := _without_links(item, removed)) != item:
                linked.add(item.collection)
                if not left.fields[LINKS]:
                    going.setdefault(item.collection, set()).add(item.name)
        return going, linked

    def _both(self, every: list[Collection]) -> list[Collection]:
        memories = _of_memories([one.name for one in every], self.collection, self.chroma.folder)
        return [one for one in every if one.name in {memories, memories + ENTITIES}]


def _of_memories(names: Iterable[str], asked: str | None, folder: Path) -> str:
    """Return the collection of the memories.

    Raises:
        UsageError: none, or several.
    """
    found = [name for name in names if not name.endswith(ENTITIES) and name != TELEMETRY]
    chosen = asked or (found[0] if len(found) == 1 else None)
    if chosen is None or chosen not in found:
        raise UsageError(
            f"{folder}: collections {', '.join(map(repr, sorted(found)))[:200] or 'none'}: name that of the "
            "memories with --option collection=NAME"
        )
    return chosen


def _kept_points(layer: str, removed: Removed) -> Callable[[qdrant_points.Point], bytes | None]:
    """Return what says what is to stay of a point of a layer."""

    def kept(point: qdrant_points.Point) -> bytes | None:
        if layer == MEMORIES:
            return None if point.point_id in removed.ids else point.raw
        links = point.payload.get(LINKS)
        if not isinstance(links, list) or removed.ids.isdisjoint(map(str, links)):
            return point.raw
        left = [link for link in links if str(link) not in removed.ids]
        return qdrant_points.replace_payload(point.raw, {**point.payload, LINKS: left}) if left else None

    return kept


def _layer(collection: str) -> str:
    return ENTITY_LAYER if collection.endswith(ENTITIES) else MEMORIES


def _without_links(item: Item, removed: Removed) -> Item:
    links = item.fields.get(LINKS)
    if _layer(item.collection) == MEMORIES or not isinstance(links, list) or removed.ids.isdisjoint(links):
        return item
    return replace(item, fields={**item.fields, LINKS: [link for link in links if link not in removed.ids]})
