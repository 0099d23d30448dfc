"""The files of a reader, as `memory_audit.models.activations.behaviour_reader.read_weights` reads them.

Large matrices are whole numbers of eight bits, with one scale for each row, or for each column where a matrix is tall:
for each unit of a network, and for each of the few directions that an update passes through. Scales are symmetric and
rounding is to nearest, as of weights in LLM.int8() (Dettmers et al. 2022). Small matrices are in half precision, and
biases in single.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_audit.errors import UsageError
from memory_audit.models.activations.behaviour_reader import SCALE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_audit.models.activations.behaviour_reader import ReaderWeights

__all__ = ["save", "stored_arrays"]

_CODED_FROM = 4_096
"""Numbers of a matrix that is stored as codes; half precision costs little where there are fewer."""

_MOST = 127
"""Largest code."""


def stored_arrays(weights: ReaderWeights) -> dict[str, Any]:
    """Return a reader's weights as its file holds them; `behaviour_reader.weights_of` is the way back.

    Raises:
        UsageError: weights that the file cannot hold.
    """
    parts: dict[str, Any] = {"projection": weights.projection, "offset": weights.offset}
    for kind, networks in (("harm", weights.harm), ("comparing", weights.comparing)):
        parts |= {f"{kind}.{part.name}": getattr(networks, part.name) for part in fields(networks)}
    parts |= {f"layers.{name}": part for name, part in weights.updates.items()}
    stored: dict[str, Any] = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for name, part in parts.items():
            stored |= _stored(name, part)
    if wrong := [name for name, part in stored.items() if not np.isfinite(part).all()]:
        raise UsageError(f"{wrong[0]}: a weight is no number, or too large for the file")
    return stored


def save(weights: ReaderWeights, path: Path) -> None:
    """Write a reader's weights, and its curve beside them.

    Raises:
        UsageError: weights that the file cannot hold.
    """
    np.savez_compressed(path, **stored_arrays(weights))
    curve = {name: value for name, value in asdict(weights.curve).items() if math.isfinite(value)}
    record = {"weights_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "curve": curve}
    path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _stored(name: str, part: NDArray[np.float32]) -> dict[str, Any]:
    if name.endswith(("bias", "offset")):
        return {name: part.astype(np.float32)}
    rows, columns = part.shape[-2:]
    if rows * columns < _CODED_FROM:
        return {name: part.astype(np.float16)}
    largest = np.abs(part).max(axis=-2 if rows > columns else -1, keepdims=True)
    scale = np.asarray(np.maximum(largest, 1e-30) / _MOST, np.float32)  # rows of zeros divide by no zero
    return {name: np.rint(part / scale).astype(np.int8), f"{name}{SCALE}": scale}
