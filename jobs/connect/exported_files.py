"""The files of an export: one file, a folder, or a zip archive, found by name and read within a bound.

Nothing is unpacked to a disk, and no name in an archive or a manifest is a path: only its last part is compared. Where
two files have the name that is asked for, neither is taken: two readers may see two exports.
"""

from __future__ import annotations

import re
import zlib
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import msgspec

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.outside_file import open_regular, read_regular, walk
from memory_audit.integrations.record import utc_ms

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = [
    "MAX_BYTES", "Exported", "Options", "base_names", "check_manifest", "find_one", "in_ms", "is_archive", "names",
    "read",
]  # fmt: skip

MAX_BYTES = 64 << 20
"""Of one file, unpacked: the memories of an account are kilobytes."""

MAX_FILES = 100_000
"""In an archive or a folder: a product puts every picture of an account in."""

ENCRYPTED = 1
"""Bit of a member's flags."""

_MANIFEST = re.compile(r"(?:.*[-_])?manifest(?:[-_].*)?\.json")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An export has none."""


class Exported:
    """An export at a path."""

    def __init__(self, place: str, options: Options) -> None:
        del options
        self.path = Path(place)


def is_archive(path: Path) -> bool:
    """Tell whether a file begins as a zip archive does.

    Raises:
        UsageError: it cannot be read.
    """
    if path.is_dir():
        return False
    with _told(path), open_regular(path) as file:
        return file.read(4) in {b"PK\x03\x04", b"PK\x05\x06"}


def names(path: Path) -> list[str]:
    """Return the names of all files, sorted; of one file its own.

    Raises:
        UsageError: it cannot be read, or has too many files.
    """
    if path.is_dir():
        found = [file.relative_to(path).as_posix() for file, is_closed in walk(path) if not is_closed]
    elif is_archive(path):
        with _archive(path) as archive:
            found = [info.filename for info in archive.infolist() if not info.is_dir()]
    else:
        found = [path.name]
    if len(found) > MAX_FILES:
        raise UsageError(f"{path}: {len(found)} files, and {MAX_FILES} are looked at in an export")
    return sorted(found)


def base_names(path: Path) -> set[str]:
    """Return the last parts of `names`. Raises likewise."""
    return {PurePosixPath(name).name for name in names(path)}


def read(path: Path, name: str) -> bytes:
    """Return one of the files that `names` names.

    Raises:
        UsageError: it cannot be read whole, is larger than MAX_BYTES, a link, or packed in a way that has no bound.
    """
    where = f"{path}: {name!r:.120}"
    if path.is_dir():
        if (path / name).is_symlink():
            raise UsageError(f"{where}: a link, which is not followed")
        with _told(path / name):
            return read_regular(path / name, MAX_BYTES)
    if not is_archive(path):
        with _told(path):
            return read_regular(path, MAX_BYTES)
    with _archive(path) as archive:
        infos = [info for info in archive.infolist() if info.filename == name]
        if len(infos) != 1:
            raise UsageError(f"{where}: {len(infos)} times in the archive")
        if infos[0].flag_bits & ENCRYPTED or infos[0].compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
            raise UsageError(f"{where}: encrypted, or packed by another method than products use")
        with archive.open(infos[0]) as file:
            data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UsageError(f"{where}: more than {MAX_BYTES} bytes")
    return data


def find_one(path: Path, name: str) -> bytes | None:
    """Return the file of that name, in whatever folder it lies; None where there is none.

    Raises:
        UsageError: as `read`; or there are two.
    """
    found = [there for there in names(path) if PurePosixPath(there).name == name]
    if len(found) > 1:
        raise UsageError(f"{path}: {len(found)} files are named {name}: it is not clear which one counts")
    return read(path, found[0]) if found else None


def check_manifest(path: Path, there: Collection[str]) -> list[str]:
    """Return the last parts of all files, `.json` and `.zip`, that the manifests of an export name.

    Args:
        path: The export, or its manifest.
        there: The last parts of the names that are there.

    Raises:
        UsageError: as `read`; a named file is not there.
    """
    named: set[str] = set()
    for name in names(path):
        if _MANIFEST.fullmatch(PurePosixPath(name).name):
            named |= set(_named(outside_json.decode(read(path, name), f"{path}: {name!r:.120}")))
    missing = sorted(named.difference(there))
    if missing:
        raise UsageError(
            f"{path}: {len(missing)} of {len(named)} files that its manifest names are not there, such as "
            f"{missing[0]!r:.120}: half an export is not read"
        )
    return sorted(named)


def in_ms(moment: object) -> int | None:
    """Return a time in Unix milliseconds: of Unix seconds, or of ISO 8601, where one without a zone is in UTC."""
    try:
        return max(0, int(moment * 1_000)) if isinstance(moment, int | float) else utc_ms(moment)
    except (ValueError, OverflowError):
        return None


def _named(value: Any) -> Iterator[str]:
    """Yield the last part of every string in a manifest that is a path or a link to such a file."""
    if isinstance(value, str):
        last = re.split(r"[/\\]", re.split(r"[?#]", value, maxsplit=1)[0])[-1]
        if last.endswith((".json", ".zip")):
            yield unquote(last)
    elif isinstance(value, dict | list):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _named(part)


@contextmanager
def _archive(path: Path) -> Iterator[ZipFile]:
    with _told(path), open_regular(path) as file, ZipFile(file) as archive:
        yield archive


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except (BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise UsageError(f"{path}: not a whole zip archive ({error!s:.120})") from None
