"""Folders of models, as users name them: a folder, or a Hugging Face id, which is downloaded where it is not here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memory_audit.errors import ModelError, UsageError
from memory_audit.models.libraries.telemetry import tell_nobody
from memory_audit.models.weights.cache import model_files

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PACKAGED", "model_folder"]

PACKAGED = "packaged"
"""Names the packaged weights."""


def model_folder(spec: str, *, settings: Sequence[str] = ("config.json",)) -> Path:
    """Return the folder of a model, from the user's model hub cache or the hub itself for an id.

    Args:
        spec: A folder or an id.
        settings: Files of which a model folder has one at least.

    Raises:
        UsageError: no such folder, one that holds no model, or no such model on the hub or no way to reach it.
        ModelError: a download that was cut off.
    """
    try:
        path = Path(spec).expanduser()
        is_folder = path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long a name, no such user's home, or a NUL
        raise UsageError(f"{spec!r:.200}: names no model ({error!s:.120})") from None
    if is_folder:
        if not any((path / name).is_file() for name in settings):
            raise UsageError(f"{path}: no {' or '.join(settings)} in it; give a Hugging Face model folder")
        model_files(path)  # here: what is no file is to be heard before a library waits for it
        return path
    if path.is_absolute() or spec.startswith((".", "~")) or spec.count("/") != 1:
        raise UsageError(f"{spec!r:.200}: no such model folder; give a folder, a Hugging Face id or a packaged model")
    tell_nobody()
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(snapshot_download(spec))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"{spec!r:.200}: no such folder here, and no such model on the hub or no way to reach it ({reason:.160})"
        ) from None
    except Exception as error:  # noqa: BLE001 - of whatever the hub's client connects and reads with
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{spec!r:.200}: interrupted or garbled download, start again ({reason:.160})") from None
