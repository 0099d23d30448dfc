"""Whose activations the guard's readers read: Qwen2.5-Coder-Instruct of 0.5B and of 1.5B, from where it is at hand.

In this order, and without asking the network unless a hub id is named that is not on this machine:

 1. the folder or the hub id that the model's variable names (`CODERS`); `packaged` names the packaged weights
 2. the hub's copy, where the local hub cache holds it
 3. the packaged weights (`memory_audit.models.weights.packaged`)

Readers are named by these weights: behaviours read from others cannot be compared, and a guard says so.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.models.libraries.telemetry import tell_nobody
from memory_audit.models.weights.cache import MAX_RECORD_BYTES
from memory_audit.models.weights.hub import PACKAGED, model_folder
from memory_audit.models.weights.packaged import ensure_packed, installed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.models.weights.cache import Progress

__all__ = ["CODERS", "Coder", "coder_at_hand", "coder_folder"]

WHOLE = ("config.json", "tokenizer.json", "model.safetensors")
"""Files of the hub's copy: a download that was cut off lacks one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coder:
    """One of the two models."""

    hub_id: str
    variable: str
    """Environment variable that names a folder or a hub id."""

    shape: Mapping[str, object]
    """What its `config.json` must say: the readers' weights are for states of this architecture alone."""


CODERS: Mapping[str, Coder] = MappingProxyType({
    "0.5b": Coder(
        hub_id="Qwen/Qwen2.5-Coder-0.5B-Instruct", variable="MEMAUDIT_CODER_0_5B",
        shape={"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4_864, "num_hidden_layers": 24,
               "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936},
    ),
    "1.5b": Coder(
        hub_id="Qwen/Qwen2.5-Coder-1.5B-Instruct", variable="MEMAUDIT_CODER_1_5B",
        shape={"model_type": "qwen2", "hidden_size": 1_536, "intermediate_size": 8_960, "num_hidden_layers": 28,
               "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151_936},
    ),
})  # fmt: skip
"""By the names of the packaged ones."""


def coder_folder(name: str, progress: Progress | None = None) -> Path:
    """Return the folder of one of the models, in the order above; packaged weights are assembled first.

    Args:
        name: A key of `CODERS`.
        progress: See `memory_audit.models.weights.packaged.ensure_packed`.

    Raises:
        UsageError: a named folder that is not there or is of another architecture, or packages that are not installed.
        ModelError: bytes that do not match their SHA-256, or a download that failed.
    """
    coder = CODERS[name]
    chosen = os.environ.get(coder.variable, "")
    if chosen and chosen != PACKAGED:
        return _checked(model_folder(chosen), coder)
    copy = None if chosen else _hub_copy(coder.hub_id)
    return ensure_packed(name, progress) if copy is None else _checked(copy, coder)


def coder_at_hand(name: str) -> bool:
    """Tell whether `coder_folder` would look for a named folder, or find one of the others."""
    coder = CODERS[name]
    chosen = os.environ.get(coder.variable, "")
    if chosen and chosen != PACKAGED:
        return True
    return installed(name) or (not chosen and _hub_copy(coder.hub_id) is not None)


@cache
def _hub_copy(hub_id: str) -> Path | None:
    """Return the folder of a model in the local hub cache; None where it is not there, or not whole.

    Looked for once, so that a download meanwhile does not change whose states a process reads.
    """
    tell_nobody()
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - of the models' libraries
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415
    except ImportError:
        return None
    try:
        folder = Path(snapshot_download(hub_id, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        return None
    return folder if all((folder / name).is_file() for name in WHOLE) else None


def _checked(folder: Path, coder: Coder) -> Path:
    """Return the folder of a model of this architecture. Raises UsageError where it is of another one."""
    try:
        config = json.loads(read_regular(folder / "config.json", MAX_RECORD_BYTES))
        found = {name: config.get(name) for name in coder.shape}
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise UsageError(f"{folder}: no readable config.json ({error!s:.120})") from None
    for name, expected in coder.shape.items():
        if found[name] != expected:
            raise UsageError(
                f"{folder}: {name} is {found[name]!r:.40}, expected {expected!r}: "
                f"the guard reads the activations of {coder.hub_id}"
            )
    return folder
