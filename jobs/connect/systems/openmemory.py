"""Exports of mem0's OpenMemory: `openmemory:FILE`, the zip archive, or one of the two files out of it.

    memories.json        user, apps, memories (id, content, state, …), status_history, export_meta
    memories.jsonl.gz    a memory a line, with the name of its app, and without its user

The archive is read by its `memories.json`. A memory that was deleted is in an export still, with its text: it is no
memory, and people are told. An import of OpenMemory's restores it, as every state, and overwrites by id.
"""

from __future__ import annotations

import gzip
import zlib
from io import BytesIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.records import convert
from memory_audit.integrations.record import as_text
from memory_audit.jobs.connect.connector import Facts, Record
from memory_audit.jobs.connect.exported_files import MAX_BYTES, Exported, Options, find_one, in_ms, is_archive, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["OpenMemory", "Options"]

VERSION = "1"
DELETED = "deleted"
JSON, LINES = "memories.json", "memories.jsonl.gz"
GZIP = b"\x1f\x8b"


class _Memory(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Of `memories`, or a line."""

    id: str
    content: str
    state: Literal["active", "paused", "archived", "deleted"]
    metadata: dict[str, Any] | None
    created_at: str | None
    updated_at: str | None
    user_id: str | None = None
    app_id: str | None = None
    archived_at: str | None = None
    deleted_at: str | None = None
    category_ids: list[str] = []
    app: str | None = None
    categories: list[str] = []


class _User(msgspec.Struct, kw_only=True):
    user_id: str


class _App(msgspec.Struct, kw_only=True):
    id: str
    name: str


class _Meta(msgspec.Struct, kw_only=True):
    version: str
    app_id_filter: str | None = None
    from_date: int | None = None
    to_date: int | None = None


class _Export(msgspec.Struct, kw_only=True):
    """What is read of a whole export."""

    memories: list[_Memory]
    user: _User | None = None
    apps: list[_App] = []
    export_meta: _Meta = msgspec.field(default_factory=lambda: _Meta(version=VERSION))


class OpenMemory(Exported):
    """An export of one user."""

    facts = Facts(
        written_for="exports of version 1 of mem0's OpenMemory, as its source code writes them",
        vouched=MappingProxyType({
            "record_id": "system", "text": "model", "owner": "system", "writer": "caller", "created_at_ms": "system",
            "metadata": "caller",
        }),
        unreachable=(
            "The export itself and older ones, which keep the text: importing one brings the memory back.",
            "Rows of OpenMemory with the state deleted, and its status history.",
        ),
        guard_point="none in an export",
    )  # fmt: skip

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        found = self._read()
        return f"openmemory {'lines' if found.user is None else 'export'} {found.export_meta.version}"

    def records(self) -> Iterator[Record]:
        """Yield all memories that are not deleted, paused and archived ones too."""
        found = self._read()
        owner = () if found.user is None else (("user_id", found.user.user_id),)
        apps = {app.id: app.name for app in found.apps}
        for memory in found.memories:
            if memory.state == DELETED:
                continue
            app = memory.app or apps.get(memory.app_id or "", memory.app_id)
            told = {key: as_text(value) for key, value in (memory.metadata or {}).items()}
            yield Record(
                record_id=memory.id, text=memory.content, owner=owner, writer=None if app is None else ("app", app),
                created_at_ms=in_ms(memory.created_at), metadata={**told, "state": memory.state},
            )  # fmt: skip

    def told(self) -> Sequence[str]:
        """Return what people are to know of the export."""
        found = self._read()
        deleted = sum(memory.state == DELETED for memory in found.memories)
        meta, lines = found.export_meta, []
        if deleted:
            lines.append(
                f"{counted(deleted, 'memory')} deleted in OpenMemory, and their texts are in the export still: not "
                "imported here; OpenMemory's own import would bring them along"
            )
        if meta.app_id_filter or meta.from_date or meta.to_date:
            lines.append("an export of one app or of some days only: the rest of the memories is not in it")
        return lines

    def _read(self) -> _Export:
        where = str(self.path)
        data = (
            find_one(self.path, JSON)
            if is_archive(self.path) or self.path.is_dir()
            else read(self.path, self.path.name)
        )
        if data is None:
            raise UsageError(f"{where}: no {JSON} in it: not an export of OpenMemory, or a part of one")
        if data.startswith(GZIP):
            return _Export(memories=list(_lines(data, where)))
        found = convert(outside_json.decode(data, where), _Export, where)
        if found.user is None:
            raise UsageError(f"{where}: user is missing: not an export of OpenMemory")
        if found.export_meta.version != VERSION:
            raise UsageError(f"{where}: version {found.export_meta.version!r:.40}; {VERSION} is known")
        return found


def _lines(data: bytes, where: str) -> Iterator[_Memory]:
    try:
        with gzip.GzipFile(fileobj=BytesIO(data)) as file:
            plain = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{where}: not a whole gzip file ({error!s:.120})") from None
    if len(plain) > MAX_BYTES:
        raise UsageError(f"{where}: more than {MAX_BYTES} bytes unpacked")
    for number, line in enumerate(plain.split(b"\n"), start=1):
        if line.strip():
            at = f"{where}, line {number}"
            yield convert(outside_json.decode(line, at), _Memory, at)
