"""Where other people's vectors lie: `../shared/vectors` beside the repository, or the folder in MEMAUDIT_VECTORS."""

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("MEMAUDIT_VECTORS", Path(__file__).parents[2].parent / "shared" / "vectors"))


def vectors(name):
    """Folder of one set; the module that asks is skipped where it is absent."""
    folder = ROOT / name
    if not folder.is_dir():
        pytest.skip(f"no vectors {name} (set MEMAUDIT_VECTORS)", allow_module_level=True)
    return folder
