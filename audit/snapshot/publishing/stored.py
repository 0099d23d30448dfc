"""What lies in a store, whether or not a version names it, and erasing it: in its folder, or in its object store."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from memory_audit.errors import IncompleteError
from memory_audit.formats.outside_file import walk
from memory_audit.provenance import durable
from memory_audit.provenance.folder_lock import is_of_this_machine
from memory_audit.provenance.mirror import Stored, mirror_of
from memory_audit.snapshot.layout import STORE_FOLDERS, STORED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["all_files", "behind_link", "erase_files", "is_of_one_machine", "keeps_versions", "stored_files"]


def is_of_one_machine(store: Path) -> bool:
    """Tell whether no other machine can write to a store; False where that cannot be told."""
    return mirror_of(store) is None and is_of_this_machine(store / "scratch")


def stored_files(store: Path) -> dict[Path, Stored]:
    """Every file that a store's writers can have put there, whether or not a manifest names it.

    Goes by place and name alone; some may lie `behind_link`.
    """
    mirror = mirror_of(store)
    if mirror is not None:
        return {store / name: it for name, it in mirror.remote.listing().items() if STORED.fullmatch(name)}
    found: dict[Path, Stored] = {}
    for path in _stored_here(store):
        with suppress(FileNotFoundError):  # others may write
            status = path.stat()
            found[path] = Stored(status.st_size, status.st_mtime_ns // 1_000_000)
    return found


def all_files(store: Path) -> list[Path]:
    """Return all that lies in a store's own folders, whatever its name."""
    mirror = mirror_of(store)
    if mirror is None:
        return [path for folder in STORE_FOLDERS for path, _ in walk(store / folder)]
    # The leases of other commands lie in scratch/, and nothing else.
    return [store / name for name in mirror.remote.listing() if name.split("/")[0] in {*STORE_FOLDERS} - {"scratch"}]


def erase_files(store: Path, files: Sequence[Path]) -> dict[Path, str]:
    """Erase files where they are kept, and in a mirror; return those that are still there, to why."""
    mirror = mirror_of(store)
    kept = {} if mirror is None else mirror.remote.remove(str(path.relative_to(store)) for path in files)
    stays = {store / name: why for name, why in kept.items()}
    for path in files:
        try:
            if mirror is None or path.is_file():
                durable.remove(path)
        except IncompleteError as error:
            stays[path] = str(error)
    return stays


def keeps_versions(store: Path) -> bool:
    """Tell whether an object store is known to keep what is erased; False where that is not known."""
    return (mirror := mirror_of(store)) is not None and mirror.remote.keeps_versions


def behind_link(store: Path, path: Path) -> bool:
    """Tell whether a file of `stored_files` is a link, or lies in a folder that is one: it may not be the store's."""
    parts = path.relative_to(store).parts
    return any(store.joinpath(*parts[:depth]).is_symlink() for depth in range(1, len(parts) + 1))


def _stored_here(store: Path) -> Iterator[Path]:
    """Return what `stored_files` does, of a folder."""
    for folder in STORE_FOLDERS:
        for path, _ in walk(store / folder, follow_links=True):
            if STORED.fullmatch(str(path.relative_to(store))) and path.is_file():
                yield path
