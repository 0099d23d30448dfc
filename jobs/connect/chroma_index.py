"""The vectors that Chroma keeps on disk: a folder for each collection, written by its fork of hnswlib.

    header.bin               little-endian: version (i4), then u8 each: offset, capacity, elements, bytes of one, offset
                             of its label, offset of its vector
    data_level0.bin          of each element: links to others, its vector, and its label (u8)
    index_metadata.pickle    which id has which label; plain dictionaries
    length.bin, link_lists.bin

A deleted element is marked, and its vector stays, since a search goes on from it to others. So the vector is
overwritten with zeros in its place, and its links stay.

https://github.com/chroma-core/chroma/blob/main/rust/segment/src/local_hnsw/persistence.rs
"""

from __future__ import annotations

import os
import pickle
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from memory_audit.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Element", "elements", "overwrite"]

HEADER = struct.Struct("<i6Q")
VERSION = 1
LABEL = struct.Struct("<Q")
DATA, IDS = "data_level0.bin", "index_metadata.pickle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """A vector with its place in the file."""

    name: str | None
    """Id of the document; None: it is marked as deleted."""

    offset: int
    vector: bytes
    """Float32 numbers."""

    @property
    def is_blank(self) -> bool:
        """Whether it was overwritten."""
        return not any(self.vector)


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"holds a {module}.{name}"[:200])


def elements(folder: Path) -> Iterator[Element]:
    """Yield the vectors of an index; none where nothing of it was written to disk.

    Raises:
        UsageError: files of another form.
    """
    if not (folder / IDS).exists():
        return
    names = _names(folder / IDS)
    try:
        version, _, capacity, count, size, label_at, vector_at = HEADER.unpack(
            (folder / "header.bin").read_bytes()[: HEADER.size]
        )
        fits = version == VERSION and count <= capacity and vector_at < label_at and label_at + LABEL.size == size
        if not fits or (folder / DATA).stat().st_size < count * size:
            raise UsageError(f"{folder}: an index of an unknown chromadb")
        with (folder / DATA).open("rb") as file:
            for start in range(0, count * size, size):
                element = file.read(size)
                (label,) = LABEL.unpack_from(element, label_at)
                vector = element[vector_at:label_at]
                yield Element(name=names.get(label), offset=start + vector_at, vector=vector)
    except (OSError, struct.error) as error:
        raise UsageError(f"{folder}: cannot be read ({error!s:.200})") from None


def overwrite(folder: Path, goes: Callable[[Element], bool]) -> None:
    """Overwrite vectors in their place.

    Raises:
        UsageError: as `elements`.
        IncompleteError: the file cannot be written to.
    """
    found = [element for element in elements(folder) if goes(element) and not element.is_blank]
    if not found:
        return
    try:
        with (folder / DATA).open("r+b") as file:
            for element in found:
                file.seek(element.offset)
                file.write(bytes(len(element.vector)))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise IncompleteError(f"{folder / DATA}: cannot be written to ({error.strerror})") from None


def _names(path: Path) -> dict[Any, str]:
    """Return label to id."""
    try:
        with path.open("rb") as file:
            found = _Plain(file).load()
        return {label: name for name, label in found["id_to_label"].items() if isinstance(name, str)}
    except Exception as error:  # noqa: BLE001 - a damaged pickle raises whatever it likes
        raise UsageError(f"{path}: of an unknown chromadb ({error!s:.200})") from None
