"""The pages of a scan on disk: each is there whole or not at all, and the first one last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.provenance import durable
from memory_audit.scan.pages import INDEX, page_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from memory_audit.scan.detector import ScannedMemory
    from memory_audit.scan.pages.commands import Places
    from memory_audit.scan.result import ScanResult

__all__ = ["write_pages"]


def write_pages(
    result: ScanResult,
    memory_of: Callable[[str], ScannedMemory],
    folder: Path,
    places: Places,
    earlier: Sequence[ScanResult] = (),
) -> Path:
    """Write pages into a folder of their own, and return the first one's path; the arguments are those of `page_files`.

    Pages of an earlier writing are replaced or removed: they hold text of memories.

    Raises:
        IncompleteError: the disk is full or refuses.
    """
    written = set()
    for name, page in page_files(result, memory_of, places, earlier):
        path = folder / name
        durable.ensure_folder(path.parent)
        durable.replace(path, page.encode())
        written.add(path)
    for path in {*folder.glob("*.html"), *folder.glob("entries/*.html")} - written:
        durable.remove(path)
    return folder / INDEX
