"""The files of a reader, as `memory_audit.models.activations.behaviour_reader.read_weights` reads them."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.models.activations.behaviour_reader import ReaderWeights

__all__ = ["save"]

_HALF = ("projection", "harm.units", "comparing.units", "comparing.matched", "comparing.mixed")
"""Stored in half precision, as the updates are; nearly all of the file."""


def save(weights: ReaderWeights, path: Path) -> None:
    """Write a reader's weights, and its curve beside them.

    Raises:
        UsageError: weights that the file cannot hold.
    """
    parts: dict[str, Any] = {"projection": weights.projection, "offset": weights.offset}
    for kind, networks in (("harm", weights.harm), ("comparing", weights.comparing)):
        parts |= {f"{kind}.{part.name}": getattr(networks, part.name) for part in fields(networks)}
    updates = {f"layers.{name}": part for name, part in weights.updates.items()}
    parts, half = parts | updates, {*_HALF, *updates}
    with np.errstate(over="ignore"):
        stored = {name: part.astype(np.float16 if name in half else np.float32) for name, part in parts.items()}
    if not all(np.isfinite(part).all() for part in stored.values()):
        raise UsageError(f"{path.name}: a weight is no number, or too large for the file")
    np.savez_compressed(path, **stored)
    curve = {name: value for name, value in asdict(weights.curve).items() if math.isfinite(value)}
    record = {"weights_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "curve": curve}
    path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
