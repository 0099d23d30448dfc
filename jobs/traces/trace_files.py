"""The records of a trace file, one after the other: JSON lines, one JSON value of any size, or Parquet; also gzipped.

A file of lines is decoded line by line. Where the first line is no whole object within MAX_FIRST_BYTES, its values are
streamed (ijson): the items of an array, or of the arrays of an object that hold the records. Spans of a streamed OTLP
object come one by one, each with the attributes of its resource, which precede them in every exporter seen. No more
than a line, an item or a batch of rows is in memory.
"""

from __future__ import annotations

import gzip
from typing import IO, TYPE_CHECKING, Any

import ijson
import pyarrow as pa
import pyarrow.parquet as pq

from memory_audit.errors import EventError
from memory_audit.formats.outside_file import UnfitFileError, open_regular
from memory_audit.traces.values import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MAX_LINE_BYTES", "records_of"]

MAX_LINE_BYTES = 1 << 24
"""Of one line: a collector's batch has at most 4 MiB where it came by gRPC."""

MAX_FIRST_BYTES = 1 << 20
"""Of the first line: a longer one may be the whole file, and is streamed."""

ROWS_TOGETHER = 256
"""Of a Parquet file: each may hold texts of many kilobytes."""

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_HOW: dict[str, Any] = {"use_float": True, "multiple_values": True}
_PAGE = "data"
_OTLP = {"resourceSpans": ("scopeSpans", "spans"), "resourceLogs": ("scopeLogs", "logRecords")}


def records_of(path: Path) -> Iterator[Any]:
    """Yield what a file holds, decoded; what a record means is for `memory_audit.traces.read`.

    Raises:
        EventError: the file cannot be read, or is none of these; names the file and the line.
    """
    try:
        with open_regular(path) as file:
            head = file.read(len(_PARQUET))
            file.seek(0)
            if head == _PARQUET:
                yield from _rows(file)
            elif head.startswith(_GZIP):
                with gzip.open(file) as plain:
                    yield from _json(plain, path.name)  # type: ignore[arg-type]
            else:
                yield from _json(file, path.name)
    except (pa.ArrowException, UnicodeDecodeError, ijson.JSONError, EOFError, gzip.BadGzipFile) as error:
        raise EventError(f"{path.name}: cannot be read ({' '.join(str(error).split())[:160]})") from None
    except UnfitFileError as error:
        raise EventError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise EventError(f"{path}: cannot be read ({error.strerror or error})") from None


def _rows(file: IO[bytes]) -> Iterator[Any]:
    for batch in pq.ParquetFile(file).iter_batches(ROWS_TOGETHER):
        yield from batch.to_pylist()


def _json(file: IO[bytes], name: str) -> Iterator[Any]:
    first = file.readline(MAX_FIRST_BYTES + 1)
    while first and not first.strip():
        first = file.readline(MAX_FIRST_BYTES + 1)
    if len(first) > MAX_FIRST_BYTES or (first and not _is_object(first)):
        yield from _streamed(file, name)
        return
    file.seek(0)
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
        if len(line) > MAX_LINE_BYTES:
            raise EventError(f"{name}, line {number}: more than {MAX_LINE_BYTES} bytes")
        if line.strip():
            try:
                yield decode(line)
            except ValueError as error:
                raise EventError(f"{name}, line {number}: not JSON ({' '.join(str(error).split())[:120]})") from None


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(decode(line), dict)
    except ValueError:
        return False


def _streamed(file: IO[bytes], name: str) -> Iterator[Any]:
    """Yield the records of JSON values of any size; where there are several, all are of the first one's kind."""
    file.seek(0)
    for prefix, event, value in ijson.parse(file, **_HOW):
        if (prefix, event) == ("", "start_array"):
            file.seek(0)
            yield from ijson.items(file, "item", **_HOW)
            return
        if (prefix, event) == ("", "map_key") and value in (_PAGE, *_OTLP):
            file.seek(0)
            yield from ijson.items(file, f"{_PAGE}.item", **_HOW) if value == _PAGE else _otlp(file, value)
            return
    raise EventError(f"{name}: is no list of records, and has none of {', '.join((_PAGE, *_OTLP))}")


def _otlp(file: IO[bytes], outer: str) -> Iterator[Any]:
    """Yield the spans or log records of one large OTLP object, each as an object of its own with its resource."""
    inner, leaf = _OTLP[outer]
    resource = ijson.common.ObjectBuilder()

    def noting_resource() -> Iterator[tuple[str, str, Any]]:
        nonlocal resource
        for prefix, event, value in ijson.parse(file, **_HOW):
            if (prefix, event) == (f"{outer}.item", "start_map"):
                resource = ijson.common.ObjectBuilder()
            elif prefix.startswith(f"{outer}.item.resource"):
                resource.event(event, value)
            yield prefix, event, value

    for item in ijson.items(noting_resource(), f"{outer}.item.{inner}.item.{leaf}.item"):
        yield {outer: [{"resource": getattr(resource, "value", None), inner: [{leaf: [item]}]}]}
