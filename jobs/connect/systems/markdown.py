"""Markdown folders: `markdown:FOLDER`, the memory of Claude Code, of Anthropic's memory tool, or of Letta's MemFS.

    FOLDER/**    every file is memory, hidden ones too: the agent can read them, whatever it is shown as a list

A memory is a passage (`memory_audit.jobs.connect.passages`), and its id `PATH#NAME`; equal passages of a file are one.
Nothing in such a folder says who wrote a passage, or when: a file's time is that of its last edit. Where a whole file
goes, the lines of MEMORY.md that link to it go, too: Claude Code keeps an index there.

A file is rewritten beside itself and put in its place, where it is still what was read. Agents take no lock, and write
back what they read before: the removal holds only while they are stopped.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from memory_audit.errors import StalePlanError, UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.jobs.connect.connector import MEMORIES, Facts, Record, Removed, Row
from memory_audit.jobs.connect.passages import MAX_FILE_BYTES, passages, without
from memory_audit.provenance import durable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from memory_audit.jobs.connect.passages import Passage

__all__ = ["Markdown", "Options"]

GIT = ".git"
INDEX_FILE = "MEMORY.md"
INDEX, BETWEEN = "lines of the index", "between passages"

_LINK = re.compile(r"\]\(\s*<?([^)>\s]+)|\[\[([^\]|#]+)")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `--option` may say."""

    skip: str = ""
    """Files that are no memory: patterns of paths within the folder, divided by commas (`*.png,cache/*`)."""


class Markdown:
    """A folder of notes."""

    facts = Facts(
        written_for=(
            "folders of the memory tool memory_20250818 (anthropic 2.14.0), auto memory of Claude Code, MemFS of "
            "Letta Code 0.32"
        ),
        vouched=MappingProxyType({
            "record_id": "system", "text": "caller", "owner": "nobody", "writer": "nobody", "created_at_ms": "nobody",
            "metadata": "caller",
        }),
        unreachable=(
            "The history of git, in this folder, its worktrees and its remotes, which keeps every old version.",
            "Transcripts and sessions of the agent, from which it may write the memory again.",
            "Copies, backups, synchronised mounts, and freed blocks of the file system.",
        ),
        restart=(
            "Stop the agent before, and start it after: it writes back what it read, and shows what it began with.",
        ),
        guard_point="create, str_replace, insert and rename of the memory tool, at the text that results",
    )  # fmt: skip

    def __init__(self, place: str, options: Options) -> None:
        self.folder = Path(place)
        self._skipped = [pattern for pattern in options.skip.split(",") if pattern]

    def schema(self) -> str:
        """Name what is there. Raises like `Source.schema`."""
        for _ in self._read():
            pass
        return "Markdown passages 1"

    def records(self) -> Iterator[Record]:
        """Yield all passages, by path and place."""
        for path, _, found in self._read():
            for name, passage in {passage.name: passage for passage in reversed(found)}.items():
                told = {"heading": passage.heading, "comments": " ".join(passage.comments)}
                yield Record(
                    record_id=_record_id(path, name), text=passage.text, owner=(),
                    metadata={key: value for key, value in told.items() if value},
                )  # fmt: skip

    def hold(self) -> AbstractContextManager[None]:
        """Hold nothing: agents take no lock."""
        return nullcontext()

    def rows(self, removed: Removed) -> Iterator[Row]:
        """Yield every passage, and what is between those of each file."""
        gone = self._gone(removed)
        for path, data, found in self._read():
            cut = _names(path, found, removed)
            for passage in found:
                raw = b"#".join((path.encode(), data[passage.start : passage.end]))
                listed = passage.name not in cut and _lists(path, passage, gone)
                kept = None if listed or passage.name in cut else raw
                yield Row(layer=INDEX if listed else MEMORIES, raw=raw, kept=kept)
            if between := _between(data, found):
                raw = b"#".join((path.encode(), between))
                yield Row(layer=BETWEEN, raw=raw, kept=None if path in gone else raw)

    def delete(self, removed: Removed) -> None:
        """Cut the passages out; a file of which none is left goes."""
        for path, data, found in self._read():
            self._cut(path, data, found, _names(path, found, removed))

    def clean(self, removed: Removed) -> None:
        """Cut what lists files that went out of the index."""
        gone = self._gone(removed)
        for path, data, found in self._read():
            self._cut(path, data, found, {passage.name for passage in found if _lists(path, passage, gone)})

    def erase(self) -> None:
        """Do nothing: a file that was rewritten leaves nothing in the files that are there."""

    def files(self) -> Iterator[Path]:
        """Yield every file of the folder, those of git too."""
        yield from (path for path in sorted(self.folder.rglob("*")) if path.is_file() and not path.is_symlink())

    def _read(self) -> Iterator[tuple[str, bytes, list[Passage]]]:
        """Yield path within the folder, bytes and passages of every file.

        Raises:
            UsageError: no folder; a link, a name or a file that is no memory: half a source is not read.
        """
        if not self.folder.is_dir():
            raise UsageError(f"{self.folder}: no folder there")
        for path in self._paths():
            file = self.folder / path
            try:
                found = file.lstat()
                if not stat.S_ISREG(found.st_mode):
                    raise UsageError(f"{file}: a link, or no file: not followed; --option skip=PATTERN leaves it out")
                data = read_regular(file, MAX_FILE_BYTES)
            except FileNotFoundError:
                continue  # cut out meanwhile, as its only passages went
            except OSError as error:
                raise UsageError(f"{file}: cannot be read ({error.strerror})") from None
            try:
                yield path, data, passages(data, str(file))
            except UsageError as error:
                raise UsageError(f"{error}; --option skip=PATTERN leaves it out") from None

    def _paths(self) -> list[str]:
        """Return the paths within the folder of all that is neither a folder, of git, nor skipped, sorted."""
        found = []
        for place, folders, names in os.walk(self.folder):
            linked = [name for name in folders if (Path(place) / name).is_symlink()]
            folders[:] = [name for name in folders if name != GIT]
            for name in (*names, *linked):
                path = (Path(place) / name).relative_to(self.folder).as_posix()
                if name != GIT and not any(fnmatchcase(path, pattern) for pattern in self._skipped):
                    found.append(path)
        for path in found:
            try:
                path.encode()
            except UnicodeEncodeError:
                raise UsageError(f"{self.folder}: the name {path!r:.120} is not UTF-8") from None
        return sorted(found)

    def _gone(self, removed: Removed) -> set[str]:
        """Return the files of removed passages that have no other passage, or went before."""
        named = {_path_of(record.record_id) for record in removed.records}
        left = {
            path for path, _, found in self._read()
            if not found or any(_record_id(path, passage.name) not in removed.ids for passage in found)
        }  # fmt: skip
        return named - left

    def _cut(self, path: str, data: bytes, found: list[Passage], names: set[str]) -> None:
        """Cut passages out of a file.

        Raises:
            StalePlanError: somebody wrote to it meanwhile; it is as they left it.
        """
        if not names:
            return
        file = self.folder / path
        cut = without(data, str(file), names)
        mode = stat.S_IMODE(file.stat().st_mode)
        if file.read_bytes() != data:
            raise StalePlanError(f"{file}: an agent wrote to it meanwhile: stop it, and start again")
        if all(passage.name in names for passage in found):
            durable.remove(file)
        else:
            durable.replace(file, cut)
            file.chmod(mode)


def _record_id(path: str, name: str) -> str:
    return f"{path.replace('%', '%25').replace('#', '%23')}#{name}"


def _path_of(record_id: str) -> str:
    return record_id.partition("#")[0].replace("%23", "#").replace("%25", "%")


def _names(path: str, found: list[Passage], removed: Removed) -> set[str]:
    """Return the names of a file's passages that are to go."""
    return {passage.name for passage in found if _record_id(path, passage.name) in removed.ids}


def _lists(path: str, passage: Passage, gone: set[str]) -> bool:
    """Tell whether a passage is a line of an index that links to a file that goes."""
    if Path(path).name != INDEX_FILE or "\n" in passage.text:
        return False
    targets = (unquote(target or wiki) for target, wiki in _LINK.findall(passage.text))
    here = (os.path.normpath(Path(path).parent / target) for target in targets)
    return any(place in gone or f"{place}.md" in gone for place in here)


def _between(data: bytes, found: list[Passage]) -> bytes:
    """Return what is in no passage, without blank lines."""
    parts, end = [], 0
    for passage in found:
        parts.append(data[end : passage.start])
        end = passage.end
    return b"\n".join(line for line in b"\n".join((*parts, data[end:])).splitlines() if line.strip())
