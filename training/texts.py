"""The texts that readers are fitted on: JSON lines, compressed by xz, in one folder for each use.

`xz --decompress --stdout FILE.jsonl.xz` shows one; `xz -9e FILE.jsonl` packs one that was written or mended.
"""

from __future__ import annotations

import json
import lzma
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SUFFIX", "read_texts"]

SUFFIX = ".jsonl.xz"


def read_texts(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line of the folder's files with its file's name, without the suffix; files in the order of names."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield path.name.removesuffix(SUFFIX), json.loads(line)
