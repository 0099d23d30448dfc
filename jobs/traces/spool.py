"""Spans and scores of many files, put in order by trace on disk: the spans of one trace may lie in any of them.

A SQLite file beside the events file, readable by its owner alone. A file is taken in whole or not at all, and known by
its digest: whoever starts a killed import again reads only what is missing. A span or score that comes twice, as in
pages that overlap, is kept once. The spool holds text of traces; it is removed when the events are written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from typing import TYPE_CHECKING, Self

import msgspec

from memory_audit.errors import IncompleteError, UsageError
from memory_audit.traces.records import Reading, Score, Span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

__all__ = ["Spool", "digest_of"]

FORMAT = b"memaudit spool v1"

_TABLES = """
create table files (digest blob primary key, records integer, unread integer) without rowid;
create table spans (
    trace text, start integer, span text, owner text, record blob, primary key (trace, start, span)
) without rowid;
create table ids (span text, trace text, primary key (span, trace)) without rowid;
create table scores (trace text, span text, record blob, primary key (trace, span, record)) without rowid;
"""

_TRACES = """
select trace, max(owner) as owner from spans group by trace order by owner, min(start), trace
"""

_SCORES = """
select record from scores where trace = :trace
union
select scores.record from ids join scores on scores.span = ids.span where ids.trace = :trace and scores.trace = ''
"""


class Spool:
    """What was read of trace files.

    As a context it is closed at the end, and an error of the database becomes an IncompleteError.

    Args:
        path: The spool's file; made where there is none.
        reading: How the files are read.
        digests: Those that will be taken in. A spool of another reading, or with another file, is begun anew.

    Raises:
        IncompleteError: it cannot be written.
    """

    def __init__(self, path: Path, reading: Reading, digests: Collection[bytes]) -> None:
        self.path = path
        key = int.from_bytes(hashlib.sha256(FORMAT + msgspec.json.encode(reading)).digest()[:4]) >> 1
        try:
            self._open()
            if self._db.execute("pragma user_version").fetchone() != (key,) or not self._taken() <= set(digests):
                self.remove()
                self._open()
                self._db.executescript(f"{_TABLES} pragma user_version = {key}")
        except (sqlite3.Error, OSError) as error:
            raise _failed(path, error) from None

    def _open(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._db = sqlite3.connect(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._db.close()
        if isinstance(error, sqlite3.Error):
            raise _failed(self.path, error) from None

    def _taken(self) -> set[bytes]:
        return {digest for (digest,) in self._db.execute("select digest from files")}

    def has(self, digest: bytes) -> bool:
        """Tell whether a file was taken in already."""
        return digest in self._taken()

    def take(self, digest: bytes, records: Iterable[Iterable[Span | Score]]) -> None:
        """Take in what the records of a file say, all or nothing.

        Args:
            digest: SHA-256 of the file.
            records: Per record what it says; one that says nothing is counted.
        """
        known = unread = 0
        with self._db:
            for record in records:
                said = list(record)
                for item in said:
                    self._put(item)
                known, unread = known + 1, unread + (not said)
            self._db.execute("insert into files values (?, ?, ?)", (digest, known, unread))

    def _put(self, item: Span | Score) -> None:
        packed = msgspec.msgpack.encode(item)
        if isinstance(item, Span):
            row = (item.trace_id, item.start_us, item.span_id, item.owner, packed)
            self._db.execute("insert or ignore into spans values (?, ?, ?, ?, ?)", row)
            self._db.execute("insert or ignore into ids values (?, ?)", (item.span_id, item.trace_id))
        else:
            row = (item.trace_id, "" if item.trace_id else item.span_id, packed)  # type: ignore[assignment]
            self._db.execute("insert or ignore into scores values (?, ?, ?)", row)

    def counts(self) -> dict[str, int]:
        """Return how many files, records, records that said nothing, spans, traces and scores there are."""
        files, records, unread = self._db.execute(
            "select count(*), total(records), total(unread) from files"
        ).fetchone()
        spans, traces = self._db.execute("select count(*), count(distinct trace) from spans").fetchone()
        (scores,) = self._db.execute("select count(*) from scores").fetchone()
        return {
            "files": files, "records": int(records), "records_not_understood": int(unread), "spans": spans,
            "traces": traces, "scores": scores,
        }  # fmt: skip

    def traces(self) -> Iterator[tuple[str, str]]:
        """Yield each trace's id and the tenant that it names, in order of tenant and time."""
        yield from self._db.execute(_TRACES)

    def spans(self, trace_id: str) -> Iterator[Span]:
        """Yield the spans of a trace in order of their start."""
        for (record,) in self._db.execute("select record from spans where trace = ? order by start, span", (trace_id,)):
            yield msgspec.msgpack.decode(record, type=Span)

    def scores(self, trace_id: str) -> list[Score]:
        """Return the scores of a trace and of its spans, in a fixed order."""
        found = self._db.execute(_SCORES, {"trace": trace_id})
        return [msgspec.msgpack.decode(record, type=Score) for (record,) in found]

    def remove(self) -> None:
        """Close the spool and remove it."""
        self._db.close()
        for end in ("", "-journal"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)


def digest_of(path: Path) -> bytes:
    """Return the SHA-256 of a file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise UsageError(f"{path!s:.300}: cannot be read ({error.strerror})") from None


def _failed(path: Path, error: Exception) -> IncompleteError:
    return IncompleteError(f"{path}: {error!s:.120}; if this stays, remove it and start the same command again")
