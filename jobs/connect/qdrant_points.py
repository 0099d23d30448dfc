"""The points of a local Qdrant collection (`QdrantClient(path=…)`), without that client.

    FOLDER/meta.json                            the collections
    FOLDER/collection/NAME/storage.sqlite       points(id TEXT PRIMARY KEY, point BLOB)
    FOLDER/.lock                                locked by whoever has the folder open

A row is the pickle of a `PointStruct`; `id` is the base64 of the pickle of the point's id, in whatever spelling and
protocol its client had. So one point may have several rows, of which the last is the one that is served. Pickles are
taken apart by a reader that makes dictionaries, and calls nothing; another class in one is refused by its name.
"""

from __future__ import annotations

import base64
import fcntl
import io
import os
import pickle
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar

from memory_audit.errors import HeldError, UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import read_at_most
from memory_audit.jobs.connect import sqlite_file
from memory_audit.jobs.connect.connector import Row

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = ["Point", "collections", "held", "points", "replace_payload", "rewrite", "rows", "storage_of"]

MAX_META_BYTES = 16 << 20
TABLES = {"points": ("id", "point")}
"""Of qdrant-client 1.1.7 to 1.20."""

PROTOCOL = 4
"""Of pickles, as the client pins it."""

MODELS = "qdrant_client.http.models.models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row."""

    row: int
    point_id: str
    """A number, or a UUID in its usual spelling."""

    payload: dict[str, Any]
    raw: bytes
    """Its pickle, vectors included."""


class _Struct:
    """Stands in for a model of the client: it keeps what it is given."""

    name: str

    def __init__(self) -> None:
        self.state: Any = None

    def __getstate__(self) -> Any:
        return self.state

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _PointStruct(_Struct):
    name = "PointStruct"


class _SparseVector(_Struct):
    name = "SparseVector"


_KNOWN: Mapping[tuple[str, str], Any] = {
    (MODELS, "PointStruct"): _PointStruct, (MODELS, "SparseVector"): _SparseVector,
    ("datetime", "datetime"): datetime, ("datetime", "date"): date, ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone, ("uuid", "UUID"): uuid.UUID,
}  # fmt: skip
"""All that a point may be made of, besides plain values."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is None:
            raise pickle.UnpicklingError(f"holds a {module}.{name}"[:200])
        return known


_PurePickler: Any = pickle._Pickler  # noqa: SLF001 - the C one only names classes that can be imported


class _Writer(_PurePickler):  # type: ignore[misc]
    """Writes what `_Reader` read, in any process with the same bytes."""

    def save_set(self, obj: set[Any]) -> None:
        self.write(pickle.EMPTY_SET)
        self.memoize(obj)
        self.write(pickle.MARK)
        for item in sorted(obj, key=repr):  # else in the order of hashes, of which each process has its own
            self.save(item)
        self.write(pickle.ADDITEMS)

    dispatch: ClassVar = {**_PurePickler.dispatch, set: save_set}

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if isinstance(obj, type) and issubclass(obj, _Struct):
            self.save(MODELS)
            self.save(obj.name)
            self.write(pickle.STACK_GLOBAL)
            self.memoize(obj)
        else:
            super().save_global(obj, name)


def collections(folder: Path) -> tuple[str, ...]:
    """Return the names of a folder's collections.

    Raises:
        UsageError: it is no folder of a local Qdrant, or one with a name that no path can have.
    """
    meta = folder / "meta.json"
    if not meta.is_file():
        raise UsageError(f"{folder}: no folder of a local Qdrant (no meta.json)")
    data = read_at_most(meta, MAX_META_BYTES)
    found = outside_json.decode(data, str(meta)) if len(data) <= MAX_META_BYTES else None
    named = found.get("collections") if isinstance(found, dict) else None
    if not isinstance(named, dict):
        raise UsageError(f"{meta}: lists no collections")
    for name in named:
        if name in {"", ".", ".."} or "/" in name or "\0" in name:
            raise UsageError(f"{meta}: a collection is named {name!r:.80}")
    return tuple(named)


def storage_of(folder: Path, collection: str) -> Path:
    """Return the file of a collection."""
    return folder / "collection" / collection / "storage.sqlite"


def points(connection: sqlite3.Connection, where: Path, *, served: bool = True) -> Iterator[Point]:
    """Yield the points of a collection, by the time of their last write.

    Args:
        connection: Of `sqlite_file.reading` or `writing`.
        where: The file, for messages.
        served: Leave out rows that a later one of the same point hides; they are residue.

    Raises:
        UsageError: a table of another form, or a row that is no point.
    """
    found = sqlite_file.columns(connection)
    if found != TABLES:
        raise UsageError(f"{where}: tables {found!s:.200}, expected {TABLES}: written by an unknown qdrant-client")
    hidden = _hidden(connection, where) if served else frozenset()
    for row, blob in sqlite_file.rows(connection, "points", ("point",)):
        if row not in hidden:
            yield _point(row, blob, where)


def rows(storage: Path, layer: str, kept: Callable[[Point], bytes | None]) -> Iterator[Row]:
    """Yield every row of a collection's file, hidden ones too, with what is to stay of it. Raises like `points`."""
    with sqlite_file.reading(storage) as connection:
        for point in points(connection, storage, served=False):
            yield Row(layer=layer, raw=point.raw, kept=kept(point))


def rewrite(storage: Path, kept: Callable[[Point], bytes | None]) -> None:
    """Leave of each row of a collection's file what is to stay of it.

    Raises:
        UsageError: as `points`.
        HeldError, IncompleteError: as `sqlite_file.writing`.
    """
    with sqlite_file.writing(storage) as connection:
        gone, changed = [], []
        for point in points(connection, storage, served=False):
            left = kept(point)
            if left is None:
                gone.append((point.row,))
            elif left != point.raw:
                changed.append((left, point.row))
        connection.executemany("DELETE FROM points WHERE rowid = ?", gone)
        connection.executemany("UPDATE points SET point = ? WHERE rowid = ?", changed)


def replace_payload(raw: bytes, payload: dict[str, Any]) -> bytes:
    """Return a point's pickle with another payload; all else as it was."""
    struct = _Reader(io.BytesIO(raw)).load()
    struct.state["__dict__"]["payload"] = payload
    written = io.BytesIO()
    _Writer(written, protocol=PROTOCOL).dump(struct)
    return written.getvalue()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep every client out of a folder, as a client does itself.

    Raises:
        HeldError: one has it open.
        UsageError: the lock file cannot be opened.
    """
    try:
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be locked ({error.strerror})") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise HeldError(f"{folder}: an agent has it open: stop the agent, and start again") from None
        yield
    finally:
        os.close(handle)


def _hidden(connection: sqlite3.Connection, where: Path) -> frozenset[int]:
    """Return the rows that a later one of the same point hides: only keys in another spelling can have such."""
    rows: dict[str, list[int]] = {}
    for row, key in sqlite_file.rows(connection, "points", ("id",)):
        try:
            name = _name(_Reader(io.BytesIO(base64.b64decode(key, validate=True))).load())
        except Exception as error:  # noqa: BLE001 - as in `_point`
            raise UsageError(f"{where}: row {row} has a key of an unknown qdrant-client ({error!s:.200})") from None
        if key != _key(name):
            usual = connection.execute("SELECT rowid FROM points WHERE id = ?", (_key(name),)).fetchone()
            rows.setdefault(str(name), list(usual or ())).append(row)
    return frozenset(row for same in rows.values() for row in same if row != max(same))


def _name(value: Any) -> int | str:
    """Return a point's id as clients compare it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return str(uuid.UUID(str(value)))


def _key(name: int | str) -> str:
    return base64.b64encode(pickle.dumps(name, protocol=PROTOCOL)).decode()


def _point(row: int, blob: Any, where: Path) -> Point:
    try:
        struct = _Reader(io.BytesIO(blob)).load()
        values = struct.state["__dict__"]
        name, payload = _name(values["id"]), dict(values["payload"] or {})
    except Exception as error:  # noqa: BLE001 - a damaged pickle raises whatever it likes
        raise UsageError(f"{where}: row {row} is no point of a known qdrant-client ({error!s:.200})") from None
    return Point(row=row, point_id=str(name), payload=payload, raw=bytes(blob))
