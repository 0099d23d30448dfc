"""Memory in exports of Claude: `claude:FILE`, a zip archive, `memories.json` out of it, or `manifest-….json`.

    memories.json              {"conversations_memory": "**Work context** …", "project_memories": {UUID: text},
                               "account_uuid": …, "memory_files": []}, or a list of such
    manifest-….json            names archives, which lie beside it; memories-000.zip has memories/ACCOUNT.json

An account has one text, and each project one. A memory is a section of it, from a line `**Heading**` to the next; its
id is `ACCOUNT:HEADING`, or `ACCOUNT:PROJECT:HEADING`. The product writes the text anew from time to time: a section of
the same heading and other words is an edited one.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

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
    is_archive,
    names,
    read,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Claude", "Options"]

MEMORIES = "memories.json"

_HEADING = re.compile(r"^\*\*([^*\n]+)\*\*[ \t]*$", re.MULTILINE)
_ARCHIVE = re.compile(r"memories-\d+\.zip")


class _Account(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    account_uuid: str | None = None
    conversations_memory: str | None = None
    project_memories: dict[str, str] | None = None
    memory_files: list[Any] = []


class Claude(Exported):
    """An export of accounts."""

    facts = Facts(
        written_for="memories.json and manifests as they are described in public; no real export was seen",
        vouched=MappingProxyType({
            "record_id": "model", "text": "model", "owner": "system", "writer": "nobody", "created_at_ms": "nobody",
            "metadata": "model",
        }),
        unreachable=(
            "The export itself and older ones, which keep the text.",
            "Conversations, from which the product writes its memory anew.",
        ),
        guard_point="none in an export",
    )  # fmt: skip

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        for _ in self.records():
            pass
        return "claude memory 1"

    def records(self) -> Iterator[Record]:
        """Yield the sections of every account, and of its projects."""
        for account, where in self._accounts():
            if account.memory_files:
                raise UsageError(f"{where}: memory_files, which no reader is written for: half an export is not read")
            name = account.account_uuid
            yield from _sections(account.conversations_memory or "", name, None)
            for project, text in (account.project_memories or {}).items():
                yield from _sections(text, name, project)

    def told(self) -> list[str]:
        """Return what people are to know of the export."""
        return ["a section that is gone may have been written anew under another heading: compare the texts"]

    def _accounts(self) -> Iterator[tuple[_Account, str]]:
        path = self.path
        if path.is_dir() or is_archive(path):
            yield from _of_archive(path)
        elif path.name.startswith("manifest"):
            named = check_manifest(path, {file.name for file in path.parent.iterdir()})
            archives = [name for name in named if _ARCHIVE.fullmatch(name)]
            if not archives:
                raise UsageError(f"{path}: names no memories-000.zip: memory is not in this export")
            for name in archives:
                yield from _of_archive(path.parent / name)
        else:
            yield from _of_json(read(path, path.name), str(path), None)


def _of_archive(path: Path) -> Iterator[tuple[_Account, str]]:
    """Yield the accounts of an archive or a folder, of the older form or of the newer one."""
    check_manifest(path, base_names(path))
    data = find_one(path, MEMORIES)
    files = [PurePosixPath(name) for name in names(path) if re.fullmatch(r"(?:.*/)?memories/[^/]+\.json", name)]
    if data is None and not files:
        raise UsageError(f"{path}: memory is not in this export: no {MEMORIES}, and no memories/ACCOUNT.json")
    if data is not None:
        yield from _of_json(data, f"{path}: {MEMORIES}", None)
    for file in files:
        if file.name != MEMORIES:
            yield from _of_json(read(path, str(file)), f"{path}: {str(file)!r:.120}", file.stem)


def _of_json(data: bytes, where: str, account: str | None) -> Iterator[tuple[_Account, str]]:
    value = outside_json.decode(data, where)
    for found in convert(value if isinstance(value, list) else [value], list[_Account], where):
        if found.conversations_memory is None and found.project_memories is None:
            raise UsageError(f"{where}: neither conversations_memory nor project_memories: not a known form of memory")
        found.account_uuid = found.account_uuid or account
        yield found, where


def _sections(text: str, account: str | None, project: str | None) -> Iterator[Record]:
    """Cut a text before every line that is a heading; a second heading of the same words is `HEADING~2`."""
    starts = [0, *(match.start() for match in _HEADING.finditer(text)), len(text)]
    owner = [(key, name) for key, name in (("account_uuid", account), ("project_uuid", project)) if name]
    seen: Counter[str] = Counter()
    for start, end in pairwise(starts):
        section = text[start:end].strip()
        if not section:
            continue
        titled = _HEADING.match(section)
        heading = titled[1].strip() if titled else ""
        seen[heading] += 1
        again = f"~{seen[heading]}" if seen[heading] > 1 else ""
        parts = [account or "", *([] if project is None else [project]), heading]
        yield Record(
            record_id=":".join(map(_escaped, parts)) + again, text=section, owner=tuple(owner),
            metadata={"heading": heading} if heading else {},
        )  # fmt: skip


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A").replace("~", "%7E")
