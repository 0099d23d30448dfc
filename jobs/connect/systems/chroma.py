"""Collections of a persistent Chroma, and of frameworks on one: `chroma:FOLDER`, what `PersistentClient` is given.

The client is neither imported nor needed (`memory_audit.jobs.connect.chroma_folder`): opening one writes to the files.
Ids, texts and owners are the word of whoever wrote the document. When it was written first, Chroma itself says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.integrations.documents import TEXT_FIELDS
from memory_audit.integrations.record import parts_of, utc_ms
from memory_audit.jobs.connect import documents
from memory_audit.jobs.connect.chroma_folder import DOCUMENT, RESTART, ChromaFolder, Collection, Going
from memory_audit.jobs.connect.connector import Facts, Removed, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from memory_audit.integrations.record import Record

__all__ = ["Chroma", "Options"]


class Options(documents.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `--option` may say."""

    database: str | None = None
    """Of the collections; default: every one, where no name is in two."""


class Chroma:
    """A folder of a persistent Chroma."""

    facts = Facts(
        written_for="chromadb 1.5.9",
        vouched=MappingProxyType({
            "record_id": "caller", "text": "caller", "owner": "caller", "writer": "nobody", "created_at_ms": "system",
            "metadata": "caller",
        }),
        unreachable=(
            "Copies and backups of the folder, and snapshots of its file system.",
            "Freed blocks of the file system or the disk, where a file was rewritten.",
            "What a framework keeps beside the folder, such as whole documents that these are parts of.",
            "Traces and logs of the agent, and what its model provider keeps.",
        ),
        restart=RESTART,
        guard_point="_add, _upsert and _update of the client's server",
    )  # fmt: skip

    def __init__(self, place: str, options: Options) -> None:
        self.options = options
        self.chroma = ChromaFolder(Path(place), self._chosen)

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        self.chroma.check()
        return "chromadb 1.5, persistent"

    def records(self) -> Iterator[Record]:
        """Yield all memories, in the order in which they were first written."""
        for item in self.chroma.items():
            where = f"{self.chroma.database}: {item.collection}/{item.name!r:.80}"
            fields = (DOCUMENT, *TEXT_FIELDS)
            record = documents.read(self.options, item.collection, item.name, item.fields, where, fields)
            if record is not None:
                yield replace(record, created_at_ms=utc_ms(item.created_at))

    def hold(self) -> AbstractContextManager[None]:
        """Look whether another process has a file of the folder open: Chroma takes no lock."""
        return self.chroma.hold()

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every row of the database, and every vector on disk."""
        yield from self.chroma.rows(removed, _going(removed))

    def delete(self, removed: Removed) -> None:
        """Delete the documents, and what of them waits in the queue."""
        self.chroma.delete(_going(removed))

    def clean(self, removed: Removed) -> None:
        """Clean the queue, and overwrite the vectors of deleted documents."""
        self.chroma.clean(removed)

    def erase(self) -> None:
        """Rewrite the database, and blank or remove what lies unused in the folders of vectors."""
        self.chroma.erase()

    def files(self) -> Iterator[Path]:
        """Yield every file of the folder."""
        return self.chroma.files()

    def _chosen(self, every: Sequence[Collection]) -> list[Collection]:
        found = [one for one in every if self.options.database in {None, one.database}]
        names = documents.chosen(self.options, {one.name for one in found}, self.chroma.folder)
        (name, count), *_ = Counter(one.name for one in found if one.name in names).most_common(1)
        if count > 1:
            raise UsageError(
                f"{self.chroma.folder}: {name!r:.80} is in {count} databases: name one with --option database=NAME"
            )
        return [one for one in found if one.name in names]


def _going(removed: Removed) -> Going:
    going: defaultdict[str, set[str]] = defaultdict(set)
    for record_id in removed.ids:
        collection, name = parts_of(record_id)
        going[collection].add(name)
    return dict(going)
