"""mem0 (open source) over a local Qdrant: `mem0:FOLDER`, the `path` of its vector store's configuration.

    FOLDER/collection/mem0/storage.sqlite             memories: payload data, user_id, agent_id, run_id, created_at, …
    FOLDER/collection/mem0_entities/storage.sqlite    entities, each with the ids of the memories it was found in
    history.db                                        history (all texts a memory ever had), messages (raw turns)

mem0 itself is not imported: it would ask for models, send telemetry and lock the folder. Its `created_at`, owners and
role may have been set by whoever wrote the memory. The extractor is given the last ten raw messages of an owner, so
that a removed memory comes back from there: `messages` is a side table like `history`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from memory_audit.errors import UsageError
from memory_audit.jobs.connect import qdrant_points, sqlite_file
from memory_audit.jobs.connect.connector import Facts, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_audit.entry import Source as Writer

__all__ = ["Mem0", "Options"]

OWNERS = ("user_id", "agent_id", "run_id")
"""In the order in which mem0 isolates."""

BOOKKEEPING = frozenset({
    "data", "hash", "text_lemmatized", "created_at", "updated_at", "actor_id", "role", "attributed_to",
})  # fmt: skip
"""Payload that is not metadata of the memory's own."""

NONE = "none"
ENTITIES = "_entities"
"""After the name of a collection: that of its entities."""

TELEMETRY = "mem0migrations"
"""A collection of mem0's own, without memories."""

HISTORY = {
    "history": (
        "id", "memory_id", "old_memory", "new_memory", "event", "created_at", "updated_at", "is_deleted", "actor_id",
        "role",
    ),
    "messages": ("id", "session_scope", "role", "content", "name", "created_at"),
}  # fmt: skip

WROTE: Mapping[str, Writer] = MappingProxyType({"user": "user", "assistant": "agent", "tool": "tool"})


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
        written_for="mem0ai 2.2.1, qdrant-client 1.20.0",
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

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        storage = self._storage()
        with sqlite_file.reading(storage) as connection:
            next(qdrant_points.points(connection, storage), None)
        self._history(needed=False)
        return "mem0 2 over local Qdrant, points v1"

    def records(self) -> Iterator[Record]:
        """Yield all memories, by the time of their last write."""
        storage = self._storage()
        with sqlite_file.reading(storage) as connection:
            for point in qdrant_points.points(connection, storage):
                yield _record(point, storage)

    def _collection(self) -> str:
        names = [
            name for name in qdrant_points.collections(self.folder) if not name.endswith(ENTITIES) and name != TELEMETRY
        ]
        chosen = self.options.collection or (names[0] if len(names) == 1 else None)
        if chosen not in names:
            raise UsageError(
                f"{self.folder}: collections {', '.join(map(repr, sorted(names)))[:200] or 'none'}: name that of the "
                "memories with --option collection=NAME"
            )
        return chosen

    def _storage(self) -> Path:
        return qdrant_points.storage_of(self.folder, self._collection())

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


def _record(point: qdrant_points.Point, where: Path) -> Record:
    payload = point.payload
    text = payload.get("data")
    if not isinstance(text, str):
        raise UsageError(f"{where}: row {point.row} has no text in `data`: no memory of mem0")
    owner = tuple((name, str(payload[name])) for name in OWNERS if payload.get(name))
    named, hidden = dict(owner), {*BOOKKEEPING, *(name for name, _ in owner[:1])}
    role = payload.get("role") or payload.get("attributed_to")
    writer = None
    if payload.get("actor_id"):
        writer = "actor_id", str(payload["actor_id"])
    elif role == "user" and "user_id" in named:
        writer = "user_id", named["user_id"]
    elif role == "assistant":
        writer = "agent_id", named.get("agent_id", "assistant")
    lemmas = payload.get("text_lemmatized")
    return Record(
        record_id=point.point_id, text=text, owner=owner, writer=writer, source=WROTE.get(str(role), "external"),
        created_at_ms=_ms(payload.get("created_at")),
        metadata={name: _as_text(value) for name, value in payload.items() if name not in hidden},
        spellings=(lemmas,) if isinstance(lemmas, str) and lemmas != text else (),
    )  # fmt: skip


def _ms(moment: Any) -> int | None:
    """Read a time; one without a zone is UTC."""
    try:
        read = datetime.fromisoformat(moment)
        return max(0, int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1_000))
    except (TypeError, ValueError, OverflowError):
        return None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
