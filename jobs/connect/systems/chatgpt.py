"""Saved memories of ChatGPT: `chatgpt:PLACE`, an export (a zip archive or its folder), or a pasted list.

    memory.json    [{"content": "…", "enabled": true, …}], where an export has one: not every export does
    a text file    a memory a line, copied from Manage memories; what is indented belongs to the line above

Conversations are no memory, and are not opened. A memory has no id there: it is named by the digest of its text, so
that one that was edited is another one. Who wrote it is not said, nor whose it is.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.records import convert
from memory_audit.jobs.connect.connector import Facts, Record
from memory_audit.jobs.connect.exported_files import (
    Exported,
    Options,
    base_names,
    check_manifest,
    find_one,
    in_ms,
    is_archive,
    read,
)
from memory_audit.jobs.connect.passages import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ChatGPT", "Options"]

MEMORY = "memory.json"
TIMES = frozenset({"created_at", "create_time", "updated_at", "update_time"})

_CONVERSATIONS = re.compile(r"conversations(?:-\d+)?\.json|chat\.html")
_BULLET = re.compile(r"(?:[-*+\u2022]|\d{1,4}[.)])[ \t]+")
_PASTE = "copy them from Manage memories into a text file, one a line, and name that file"


class ChatGPT(Exported):
    """An export of one account, or what was copied from it."""

    facts = Facts(
        written_for="memory.json as it is described in public, and pasted lists; no real export was seen",
        vouched=MappingProxyType({
            "record_id": "nobody", "text": "model", "owner": "nobody", "writer": "nobody", "created_at_ms": "system",
            "metadata": "system",
        }),
        unreachable=(
            "The export itself and older ones, which keep the text.",
            "Conversations, from which the product may learn a memory again.",
        ),
        guard_point="none in an export",
    )  # fmt: skip

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        return "chatgpt pasted list 1" if self._read()[0] else "chatgpt memory.json 1"

    def records(self) -> Iterator[Record]:
        """Yield all memories, those that are switched off too; equal texts are one."""
        yield from {record.record_id: record for record in self._read()[1]}.values()

    def told(self) -> Sequence[str]:
        """Return what people are to know of the export."""
        if any(map(_CONVERSATIONS.fullmatch, base_names(self.path))):
            return ["its conversations are no memory, and were not read"]
        return []

    def _read(self) -> tuple[bool, list[Record]]:
        """Return whether it is a pasted list, and what is in it."""
        path, where = self.path, str(self.path)
        if path.is_dir() or is_archive(path):
            check_manifest(path, base_names(path))
            data = find_one(path, MEMORY)
            if data is None:
                raise UsageError(f"{where}: saved memories are not in this export: {_PASTE}")
        elif _CONVERSATIONS.fullmatch(path.name):
            raise UsageError(f"{where}: conversations, and saved memories are not among them: {_PASTE}")
        else:
            data = read(path, path.name)
            if path.suffix.lower() != ".json":
                return True, list(_pasted(data, where))
        items = convert(outside_json.decode(data, where), list[dict[str, Any]], where)
        return False, [_record(item, f"{where}: [{place}]") for place, item in enumerate(items)]


def _record(item: dict[str, Any], where: str) -> Record:
    text, enabled = item.get("content"), item.get("enabled", True)
    if not isinstance(text, str) or not isinstance(enabled, bool):
        raise UsageError(f"{where}: no string `content`, or `enabled` is not true or false: not a known {MEMORY}")
    told = {key: value for key, value in item.items() if key not in TIMES | {"content"}}
    created = item.get("created_at", item.get("create_time"))
    return Record(
        record_id=name_of(text), text=text, owner=(), created_at_ms=in_ms(created),
        metadata={key: value if isinstance(value, str) else json.dumps(value) for key, value in told.items()},
    )  # fmt: skip


def _pasted(data: bytes, where: str) -> Iterator[Record]:
    """Yield the memories of a pasted list.

    Raises:
        UsageError: not UTF-8; none in it, which says nothing of what the account has.
    """
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8 (byte {error.start})") from None
    found: list[str] = []
    for line in lines:
        if line[:1].isspace() and line.strip() and found:
            found[-1] += f"\n{line.strip()}"
        elif line.strip():
            found.append(_BULLET.sub("", line.strip(), count=1) if _BULLET.match(line.strip()) else line.strip())
    if not found:
        raise UsageError(f"{where}: an empty list: {_PASTE}")
    for text in found:
        yield Record(record_id=name_of(text), text=text, owner=())
