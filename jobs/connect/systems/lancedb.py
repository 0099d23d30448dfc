"""A table of LanceDB in a local folder: `lancedb:FOLDER`, what the agent gives to `lancedb.connect`.

    FOLDER/TABLE.lance/data           rows, by columns; --option id=, text=, owner= and created= name what is read
                      /_deletions     which of them are deleted; their bytes stay in `data`
                      /_indices       of texts and vectors, both copied into them
                      /_versions      every older state of the table, which a checkout reads

The client is pylance, the library below LanceDB: it sends nothing, asks for no model, and reading writes nothing. Rows
are deleted by their number within the version that was read, never by SQL made of an id; a commit that meets another
writer's fails. `lancedb.Table.optimize` leaves a deleted row in its file while less than a tenth of it is deleted;
`erase` rewrites such a file, whatever the share, trains every index anew, and removes older versions.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from memory_audit.errors import IncompleteError, UsageError
from memory_audit.jobs.connect.connector import MEMORIES, Facts, Record, Removed, Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from memory_audit.errors import AuditError

os.environ.setdefault("LANCE_LOG", "error")  # read once, by the import: its warnings are not ours
import lance

__all__ = ["LanceDB", "Options"]

SUFFIX = ".lance"
VERSIONS, DELETED = "older versions", "files with deleted rows"
BATCH_ROWS = 1_024


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `--option` may say."""

    table: str | None = None
    """Default: the folder's only one."""

    id: str = "id"
    """Column of strings or integers, none twice."""

    text: str = "text"
    """Column of what the agent is shown."""

    owner: str = ""
    """Columns of whose it is, divided by commas, the one that isolates most first."""

    created: str | None = None
    """Column of a timestamp; one without a zone is UTC."""


class LanceDB:
    """A table of LanceDB."""

    facts = Facts(
        written_for="lancedb 0.40.0, pylance 14.0.2",
        vouched=MappingProxyType({
            "record_id": "caller", "text": "caller", "owner": "caller", "writer": "nobody", "created_at_ms": "caller",
            "metadata": "caller",
        }),
        unreachable=(
            "Texts in data files that Lance has compressed: a search of raw bytes misses even those that are there.",
            "Files of writes that never ended, which Lance itself removes after seven days.",
            "Other tables, and copies, backups and snapshots of the folder.",
            "Freed blocks of the file system or the disk, where a file was rewritten.",
            "Traces and logs of the agent, and what its model provider keeps.",
        ),
        restart=(
            "Restart every process with the table open: its handle serves what was removed, or fails, until then.",
        ),
        guard_point="AsyncTable.add, update and _do_merge, and AsyncConnection.create_table, which the rest calls",
    )  # fmt: skip

    def __init__(self, place: str, options: Options) -> None:
        self.folder = Path(place)
        self.options = options
        self._owners = [name for name in options.owner.split(",") if name]

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        return f"Lance table, files {self._open().data_storage_version}"

    def records(self) -> Iterator[Record]:
        """Yield all memories, in the order of their last write."""
        table, seen = self._open(), set()
        columns = [field.name for field in table.schema if not _is_vector(field.type)]
        for batch in _batches(table, columns):
            moments = _moments(batch.column(self.options.created)) if self.options.created else [None] * len(batch)
            for row, moment in zip(batch.to_pylist(), moments, strict=True):
                record = self._record(row, moment)
                if record.record_id in seen:
                    raise UsageError(f"{self.folder}: {record.record_id!r:.80} is twice in column {self.options.id!r}")
                seen.add(record.record_id)
                yield record

    def hold(self) -> AbstractContextManager[None]:
        """Hold nothing: Lance has no lock. A commit that meets another one fails."""
        return nullcontext()

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every row, every older version, and every file that deleted rows are in still."""
        table = self._open()
        for batch in _batches(table, None):
            for row in batch.to_pylist():
                raw = json.dumps(row, default=_plain).encode()
                yield Row(layer=MEMORIES, raw=raw, kept=None if str(row[self.options.id]) in removed.ids else raw)
        for version in table.versions():
            if version["version"] != table.version:
                yield Row(layer=VERSIONS, raw=str(version["version"]).encode(), kept=None)
        for fragment in table.get_fragments():
            if fragment.num_deletions:
                yield Row(layer=DELETED, raw=str(fragment.fragment_id).encode(), kept=None)

    def delete(self, removed: Removed) -> None:
        """Delete the rows; older versions have them still.

        Raises:
            IncompleteError: somebody else wrote to the same files meanwhile.
        """
        table, found = self._open(), []
        with _told(self.folder, IncompleteError):
            for batch in table.scanner(columns=[self.options.id], with_row_id=True).to_batches():
                named = zip(batch.column("_rowid").to_pylist(), batch.column(self.options.id).to_pylist(), strict=True)
                found += [number for number, name in named if str(name) in removed.ids]
            if found:  # no second try: the numbers are of this version
                table.delete(f"_rowid IN ({', '.join(map(str, found))})", conflict_retries=0)

    def clean(self, removed: Removed) -> None:
        """Do nothing: what an index or an older version holds goes with `erase`."""

    def erase(self) -> None:
        """Rewrite files with deleted rows and all indexes, and remove every older version.

        Lance trains an index anew only where it lacks a row: the last one is written again as it is, and is lacked.

        Raises:
            IncompleteError: a tag keeps an older version; indexes of a table without rows; somebody wrote meanwhile.
        """
        table = self._open()
        if tags := sorted(table.tags.list()):
            raise IncompleteError(
                f"{self.folder}: older versions have tags, {', '.join(map(repr, tags)):.200}: delete them "
                "(lance.dataset(PATH).tags.delete), and start the same command again"
            )
        count, indexes = table.count_rows(), [index.name for index in table.describe_indices()]
        if indexes and not count:
            raise IncompleteError(
                f"{self.folder}: no row is left to train {', '.join(map(repr, indexes)):.200} with: drop each "
                "(lance.dataset(PATH).drop_index), and start the same command again"
            )
        with _told(self.folder, IncompleteError):
            if indexes:
                last = table.scanner(columns=[], with_row_id=True, offset=count - 1, limit=1).to_table()
                name = f"`{self.options.id}`"
                table.update({self.options.id: name}, where=f"_rowid = {last.column('_rowid')[0].as_py()}")
            table.optimize.optimize_indices(retrain=True)
            table.optimize.compact_files(materialize_deletions=True, materialize_deletions_threshold=0.0)
            table.cleanup_old_versions(timedelta(0))

    def files(self) -> Iterator[Path]:
        """Yield every file of the table."""
        yield from (path for path in sorted(self._path().rglob("*")) if path.is_file())

    def _path(self) -> Path:
        names = sorted(path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}") if path.is_dir())
        chosen = self.options.table or (names[0] if len(names) == 1 else None)
        if chosen not in names:
            raise UsageError(
                f"{self.folder}: tables {', '.join(map(repr, names))[:200] or 'none'}: name that of the memories with "
                "--option table=NAME"
            )
        return self.folder / f"{chosen}{SUFFIX}"

    def _open(self) -> Any:
        """Return the newest version of the table.

        Raises:
            UsageError: none; columns are missing, or of other types; branches.
        """
        path, asked = self._path(), self.options
        with _told(path):
            table = lance.dataset(str(path.resolve()))
            branches = sorted(table.branches.list())
        types = {field.name: field.type for field in table.schema}
        wanted = [asked.id, asked.text, *self._owners, *([asked.created] if asked.created else [])]
        if missing := [name for name in wanted if name not in types]:
            raise UsageError(
                f"{path}: no column {', '.join(map(repr, missing)):.200}; it has {', '.join(map(repr, types)):.300}: "
                "name them with --option id=, text=, owner=, created="
            )
        if branches:
            raise UsageError(f"{path}: branches {', '.join(map(repr, branches)):.200} are tables of their own")
        odd = {
            asked.id: _is_text(types[asked.id]) or pa.types.is_integer(types[asked.id]),
            asked.text: _is_text(types[asked.text]),
        } | ({asked.created: pa.types.is_timestamp(types[asked.created])} if asked.created else {})
        if other := [f"{name!r} of {types[name]}" for name, fits in odd.items() if not fits]:
            raise UsageError(f"{path}: column {other[0]:.200} is no id, text or time")
        return table

    def _record(self, row: dict[str, Any], created_at_ms: int | None) -> Record:
        asked = self.options
        name, text = row[asked.id], row[asked.text]
        if name is None or text is None:
            raise UsageError(f"{self.folder}: row {name!r:.80} has no value in id or text")
        told = {asked.id, asked.text, asked.created, *self._owners}
        return Record(
            record_id=str(name), text=text, created_at_ms=created_at_ms,
            owner=tuple((owner, str(row[owner])) for owner in self._owners if row[owner] not in {None, ""}),
            metadata={key: _as_text(value) for key, value in row.items() if key not in told and value is not None},
        )  # fmt: skip


@contextmanager
def _told(where: Path, kind: type[AuditError] = UsageError) -> Iterator[None]:
    """Say what Lance says, in one line."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        then = "" if kind is UsageError else "; stop the agent, and start the same command again"
        raise kind(f"{where}: {' '.join(str(error).split()):.200}{then}") from None


def _batches(table: Any, columns: list[str] | None) -> Iterator[Any]:
    """Yield the rows of a table by some columns, or all."""
    with _told(Path(table.uri)):
        yield from table.scanner(columns=columns, batch_size=BATCH_ROWS, scan_in_order=True).to_batches()


def _moments(column: Any) -> list[int | None]:
    """Return times as Unix milliseconds."""
    whole = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).to_pylist()
    return [None if moment is None else max(0, moment) for moment in whole]


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_vector(kind: Any) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(listed and (pa.types.is_floating(kind.value_type) or _is_vector(kind.value_type)))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=_plain)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
