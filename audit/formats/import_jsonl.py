"""Memories from outside as JSON lines: one object per line with the fields of `memory_audit.entry.Entry`.

    {"tenant": "acme", "entry_id": "m-1", "principal": "bot", "source": "agent", "request": "…", "response": "…",
     "created_at_ms": 1760000000000, "parents": [["m-0", 0.9]], "metadata": {"channel": "mail"}}

`tenant`, `principal`, `source` and `created_at_ms` may be left out where a default is given. Texts that are not in
Unicode form NFC are normalised, since signed bytes must be, or refused where that takes long (`memory_audit.text.nfc`).
A member is there once. A line that breaks a rule stops the import before anything is written, naming file and line.
"""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Annotated

import msgspec

from memory_audit.entry import PARTS_PER_MILLION, Entry, Parent, Source
from memory_audit.errors import EntryError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import named_file
from memory_audit.formats.records import convert
from memory_audit.text.nfc import nfc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["parse_entries", "read_entries"]

MAX_LINE_BYTES = 1 << 20
"""Room for both texts at their limit with every character escaped; more is not an entry."""


class _Line(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A memory as its line, or a default, says it; data of its owner's own belong into `metadata`."""

    tenant: str
    entry_id: str
    principal: str
    source: Source
    request: str
    response: str
    created_at_ms: int
    parents: tuple[tuple[str, Annotated[float, msgspec.Meta(ge=0, le=1)]], ...] = ()
    metadata: dict[str, str] = {}


def read_entries(file: Path, defaults: Mapping[str, object], *, once: bool = False) -> list[Entry]:
    """Read a whole file of JSON lines; the path `-` is standard input.

    Args:
        file: Where the lines are.
        defaults: Values for fields that a line leaves out.
        once: A tenant may have each entry id once, as in a store.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        EntryError: as `parse_entries`, and with `once` an id that is there twice.
    """
    read = _read_once if once else parse_entries
    if str(file) == "-":
        return list(read(_lines(sys.stdin.buffer), "standard input", defaults))
    with named_file(file) as stream:
        return list(read(_lines(stream), file.name, defaults))


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Read lines, none much longer than is allowed: a pipe or a device may send one that no memory holds."""
    return iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b"")


def parse_entries(lines: Iterable[bytes], source: str, defaults: Mapping[str, object]) -> Iterator[Entry]:
    """Parse JSON lines into entries; blank lines are skipped.

    Args:
        lines: Raw lines, as a binary file yields them.
        source: Name of the file, for messages.
        defaults: Values for fields that a line leaves out.

    Raises:
        EntryError: names the file, the line and the rule broken.
    """
    return (entry for _, entry in _numbered(lines, source, defaults))


def _read_once(lines: Iterable[bytes], source: str, defaults: Mapping[str, object]) -> Iterator[Entry]:
    seen: dict[tuple[str, str], int] = {}
    for number, entry in _numbered(lines, source, defaults):
        first = seen.setdefault((entry.tenant, entry.entry_id), number)
        if first != number:
            raise EntryError(
                f"{source}, line {number}: entry {entry.entry_id!r:.80} of tenant {entry.tenant!r:.80} is on line "
                f"{first} already: entry ids are used once"
            )
        yield entry


def _numbered(lines: Iterable[bytes], source: str, defaults: Mapping[str, object]) -> Iterator[tuple[int, Entry]]:
    for number, raw in enumerate(lines, start=1):
        where = f"{source}, line {number}"
        if len(raw) > MAX_LINE_BYTES:
            raise EntryError(f"{where}: more than {MAX_LINE_BYTES} bytes, which is no entry")
        if not raw.strip():
            continue
        try:
            yield number, _parse(raw, where, defaults)
        except EntryError as error:
            text = str(error)
            raise EntryError(text if text.startswith(where) else f"{where}: {text}") from None


def _parse(raw: bytes, where: str, defaults: Mapping[str, object]) -> Entry:
    record = outside_json.decode(raw, where, error=EntryError)
    if isinstance(record, dict):
        record = {**defaults, **record}
    line = convert(record, _Line, where, error=EntryError)
    metadata = {
        nfc(key, f"{where}: a metadata key"): nfc(value, f"{where}: a metadata value")
        for key, value in line.metadata.items()
    }
    if len(metadata) != len(line.metadata):
        raise EntryError(f"{where}: a metadata key is there twice, in two Unicode forms")
    names = ("tenant", "entry_id", "principal", "request", "response")
    return Entry(
        **{name: nfc(getattr(line, name), f"{where}: {name}") for name in names},
        source=line.source, created_at_ms=line.created_at_ms, metadata=metadata,
        parents=tuple(
            Parent(entry_id=nfc(name, f"{where}: a parent's id"), weight_ppm=round(weight * PARTS_PER_MILLION))
            for name, weight in line.parents
        ),
    )  # fmt: skip
