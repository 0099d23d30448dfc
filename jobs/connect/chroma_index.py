"""The vectors that Chroma keeps on disk: a folder for each collection, written by its fork of hnswlib.

    header.bin               little-endian: version (i4), then u8 each: offset, capacity, elements, bytes of one, offset
                             of its label, offset of its vector
    data_level0.bin          elements: how many links (u2, in 4 bytes), the links to other elements (u4), room for more,
                             a vector (f4), a label (u8)
    length.bin               a number (f4) of each element
    index_metadata.pickle    which id has which label; plain dictionaries
    link_lists.bin

A deleted element is marked, and its vector stays: a search goes by it to others. So another vector is written in its
place, that of the first element it is linked to which is not deleted, and zeros where there is none. Zeros everywhere
would lead searches astray.

Beyond the elements both files have room for more, which Chroma writes as it found it in its memory: texts of documents
among it.

https://github.com/chroma-core/chroma/blob/main/rust/segment/src/local_hnsw/persistence.rs
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from memory_audit.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["FILES", "Element", "Index", "blank", "opened", "overwrite"]

HEADER = struct.Struct("<i6Q")
VERSION = 1
COUNT, LINKS_AT, LINK_BYTES = struct.Struct("<H"), 4, 4
LABEL = struct.Struct("<Q")
LENGTH_BYTES = 4
CHUNK = 1 << 20
HEAD, DATA, LENGTHS, IDS = "header.bin", "data_level0.bin", "length.bin", "index_metadata.pickle"
FILES = frozenset({HEAD, DATA, LENGTHS, IDS, "link_lists.bin"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """A vector with its place in the file."""

    name: str | None
    """Id of the document; None: it is marked as deleted."""

    links: tuple[int, ...]
    """Numbers of other elements, near ones first."""

    offset: int
    vector: bytes
    """Float32 numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """An index as it lies on disk."""

    names: Mapping[Any, str]
    """Label to id."""

    count: int
    size: int
    """Bytes of an element."""

    label_at: int
    vector_at: int
    data: mmap.mmap | bytes

    def __iter__(self) -> Iterator[Element]:
        """Yield all elements, deleted ones too."""
        return map(self.element, range(self.count))

    def element(self, number: int) -> Element:
        """Return an element by its number, from 0."""
        start = number * self.size
        (linked,) = COUNT.unpack_from(self.data, start)
        (label,) = LABEL.unpack_from(self.data, start + self.label_at)
        linked = min(linked, (self.vector_at - LINKS_AT) // LINK_BYTES)
        links = struct.unpack_from(f"<{linked}I", self.data, start + LINKS_AT)
        return Element(
            name=self.names.get(label), links=tuple(link for link in links if link < self.count),
            offset=start + self.vector_at, vector=self.data[start + self.vector_at : start + self.label_at],
        )  # fmt: skip

    def stand_in(self, element: Element, is_live: Callable[[Element], bool]) -> bytes:
        """Return the vector that a deleted element is to have."""
        linked = map(self.element, element.links)
        return next((other.vector for other in linked if is_live(other)), bytes(len(element.vector)))


@contextmanager
def opened(folder: Path) -> Iterator[Index]:
    """Open an index to read it; an empty one where nothing of it was written to disk.

    Raises:
        UsageError: files of another form.
    """
    if not (folder / IDS).exists():
        yield Index(names={}, count=0, size=0, label_at=0, vector_at=0, data=b"")
        return
    names = _names(folder / IDS)
    count, size, label_at, vector_at = _header(folder)
    with (folder / DATA).open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if count else b""
        yield Index(names=names, count=count, size=size, label_at=label_at, vector_at=vector_at, data=data)


def overwrite(folder: Path, is_live: Callable[[Element], bool]) -> None:
    """Write other vectors in the place of those that are not live.

    Raises:
        UsageError: as `opened`.
        IncompleteError: the file cannot be written to.
    """
    with opened(folder) as index:
        if index.count:
            dead = (element for element in index if not is_live(element))
            _write(folder / DATA, ((element.offset, index.stand_in(element, is_live)) for element in dead))


def blank(folder: Path) -> None:
    """Write zeros where the files have room for more elements.

    Raises:
        UsageError, IncompleteError: as `overwrite`.
    """
    if not (folder / HEAD).exists():
        return
    count, size, *_ = _header(folder)
    for path, used in ((folder / DATA, count * size), (folder / LENGTHS, count * LENGTH_BYTES)):
        end = path.stat().st_size if path.exists() else used
        _write(path, ((start, bytes(min(CHUNK, end - start))) for start in range(used, end, CHUNK)))


def _header(folder: Path) -> tuple[int, int, int, int]:
    """Return how many elements there are, and of one the bytes, and the offsets of label and vector."""
    try:
        head = (folder / HEAD).read_bytes()[: HEADER.size]
        version, _, capacity, count, size, label_at, vector_at = HEADER.unpack(head)
        there = (folder / DATA).stat().st_size
    except (OSError, struct.error) as error:
        raise UsageError(f"{folder}: cannot be read ({error!s:.200})") from None
    fits = version == VERSION and count <= capacity and LINKS_AT <= vector_at < label_at
    if not fits or label_at + LABEL.size != size or there < count * size:
        raise UsageError(f"{folder}: an index of an unknown chromadb")
    return count, size, label_at, vector_at


def _write(path: Path, parts: Iterable[tuple[int, bytes]]) -> None:
    """Write bytes in place, each at its offset."""
    try:
        with path.open("r+b") as file:
            for offset, part in parts:
                file.seek(offset)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise IncompleteError(f"{path}: cannot be written to ({error.strerror})") from None


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"holds a {module}.{name}"[:200])


def _names(path: Path) -> dict[Any, str]:
    try:
        with path.open("rb") as file:
            found = _Plain(file).load()
        return {label: name for name, label in found["id_to_label"].items() if isinstance(name, str)}
    except Exception as error:  # noqa: BLE001 - a damaged pickle raises whatever it likes
        raise UsageError(f"{path}: of an unknown chromadb ({error!s:.200})") from None
