"""A folder that mirrors files kept elsewhere, say in an object store: what is written is sent, what is read is fetched.

Files named by their content are kept in the folder, and read from it. The folder is trusted in nothing: its bytes are
verified like all others, and what does not verify is fetched anew. Files that are named otherwise, and which files
there are, are asked for each time.

1. `write` remembers what `send` has to send; the caller has put it into the folder.
2. `send` sends all of it, and returns when all is there. What nobody names yet is harmless; a next try sends it again.
3. `create` is the commit point: the remote side lets one writer alone create a name.

Whoever opens such a folder in a process registers it with `mirrored`. A `Remote` speaks to the network, and not this.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from memory_audit.errors import IncompleteError
from memory_audit.formats.outside_file import walk
from memory_audit.provenance import durable
from memory_audit.provenance.folder_lock import locked

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["Mirror", "Remote", "Stored", "mirror_of", "mirrored", "with_addresses"]


@dataclass(frozen=True, slots=True)
class Stored:
    """What is known of a file without reading it."""

    size: int
    """Bytes."""

    changed_ms: int
    """Unix milliseconds, by the clock of where it lies."""


class Remote(Protocol):
    """Files elsewhere, each under a name like `data/b=6d/….parquet`; they are there whole or not at all.

    Every method raises UsageError where the address, the credentials or the permissions are wrong, and IncompleteError
    where it cannot be reached.
    """

    @property
    def address(self) -> str:
        """What a user calls it by."""

    @property
    def keeps_versions(self) -> bool:
        """Whether it is known to keep what is removed or replaced; False where that is not known."""

    def attach(self) -> Path:
        """Return the folder that mirrors it on this machine, registered; another process gets to it by pickle."""

    def listing(self, prefix: str = "") -> dict[str, Stored]:
        """Return all files whose names begin with a folder's."""

    def get(self, name: str, max_bytes: int) -> bytes | None:
        """Read a file; None where there is none. Raises VerificationError where it is larger."""

    def get_all(self, sizes: Mapping[str, int]) -> Iterable[tuple[str, bytes]]:
        """Read many files, of at most so many bytes each, in any order; those that are missing are left out."""

    def put(self, name: str, data: bytes) -> None:
        """Write a file, over one that is there."""

    def put_all(self, files: Mapping[str, Path]) -> None:
        """Write many files, over those that are there."""

    def create(self, name: str, data: bytes) -> bool:
        """Create a file; False where it is there already, with another content."""

    def remove(self, names: Iterable[str]) -> dict[str, str]:
        """Remove files; return those that stay, to why."""

    def hold(self, *, wait_s: float) -> AbstractContextManager[None]:
        """Keep other writers out, on whatever machine. Raises IncompleteError where they are there all the time."""

    def check_held(self) -> None:
        """Make sure that nobody took it over. Raises IncompleteError."""

    def check_condition(self) -> None:
        """Try, once in a process, whether `create` lets one of several writers at once succeed. Raises UsageError."""


@dataclass(slots=True)
class Mirror:
    """The folder and what it mirrors."""

    folder: Path
    remote: Remote
    unsent: dict[str, Path] = field(default_factory=dict)
    seen: object = None
    """Mark of the state at which what the remote side no longer has was last removed here."""

    def write(self, path: Path) -> None:
        """Have a file sent that was put into the folder."""
        self.unsent[str(path.relative_to(self.folder))] = path

    def send(self) -> None:
        """Send what was written. Raises like a `Remote`."""
        self.remote.put_all(self.unsent)
        self.unsent.clear()

    def fetch(self, sizes: Mapping[str, int], *, anew: bool = False) -> None:
        """Fetch files named by their content, of at most so many bytes each, that the folder has not.

        Those that are missing stay so: whoever reads them says it. Raises like a `Remote`.
        """
        durable.ensure_folder(self.folder / "scratch", mode=0o770)
        for name, data in self.remote.get_all(
            {name: size for name, size in sizes.items() if anew or not (self.folder / name).exists()}
        ):
            path = self.folder / name
            durable.ensure_folder(path.parent)
            if anew:
                durable.remove(path)
            durable.create(path, data, scratch=self.folder / "scratch", synced=False)

    def prune(self, mark: object, names: re.Pattern[str]) -> None:
        """Remove what has such a name and is gone from the remote side, once for each mark: erased there, erased here.

        While another command writes to the folder, what it has not sent yet looks like that: then nothing is removed.
        """
        if mark == self.seen:
            return
        durable.ensure_folder(self.folder / "scratch", mode=0o770)
        with suppress(IncompleteError), locked(self.folder / "scratch", wait_s=0):
            there = self.remote.listing()
            for path, _ in walk(self.folder):
                name = str(path.relative_to(self.folder))
                if names.fullmatch(name) and name not in there and not durable.is_leftover(path):
                    durable.remove(path)
            durable.remove_leftovers(self.folder / "scratch")
            self.seen = mark


_MIRRORS: dict[Path, Mirror] = {}


def mirrored(folder: Path, remote: Remote) -> Path:
    """Register a folder as the mirror of something, in this process."""
    _MIRRORS.setdefault(folder, Mirror(folder=folder, remote=remote))
    return folder


def mirror_of(folder: Path) -> Mirror | None:
    """Return what a folder mirrors; None where its files are the files themselves."""
    return _MIRRORS.get(folder)


def with_addresses(text: str) -> str:
    """Return a text for people with each mirror's folder named by its address."""
    for folder, mirror in _MIRRORS.items():
        text = text.replace(str(folder), mirror.remote.address)
    return text
