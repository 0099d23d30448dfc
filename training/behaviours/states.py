"""Mean states of texts, read once and kept in the user's cache."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.models.activations.behaviour_reader import FIRST, PASSAGE_TOKENS, adapted, passage_means
from memory_audit.models.activations.hidden_states import READING
from memory_audit.models.weights.cache import cache_dir, folder_id
from memory_audit.models.weights.packaged import ensure_packed
from training.behaviours.corpus import EACH
from training.behaviours.fitting_states import FittingStates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_audit.jobs.watching.progress import Reporter
    from memory_audit.models.activations.behaviour_reader import ReaderFile

__all__ = ["by_scenario", "states_of"]


def states_of(
    texts: Sequence[str],
    reporter: Reporter,
    updates: Mapping[str, NDArray[np.float32]] | None = None,
    *,
    device: str = "cpu",
    source: ReaderFile = FIRST,
) -> list[NDArray[np.float32]]:
    """Return each text's `passage_means`, shape (passages, hidden), from the cache where it was read before.

    Args:
        texts: What to read.
        reporter: For progress.
        updates: Of the backbone's layers; what is read with them has a cache of its own.
        device: What reads them, as torch names it.
        source: Whose backbone and layer.
    """
    folder = ensure_packed(source.backbone)
    name = f"passages-{folder_id(folder).replace('@', '-')}-{source.layer}-{READING}-{PASSAGE_TOKENS}"
    path = cache_dir() / (f"{name}-{_digest(updates)}.npz" if updates else f"{name}.npz")
    known: dict[str, NDArray[np.float16]] = {}
    if path.is_file():
        with np.load(path) as data:
            known = dict(zip(data["keys"].tolist(), np.split(data["means"], np.cumsum(data["each"])[:-1]), strict=True))
    keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    new = sorted({(key, text) for key, text in zip(keys, texts, strict=True) if key not in known}, key=_length)
    if new:
        states = adapted(FittingStates(folder, source.layer, device=device), updates or {})
        with reporter.stage("reading texts", len(new)) as progress:
            for start in range(0, len(new), 32):
                part = new[start : start + 32]
                for (key, _), tokens in zip(part, states.tokens([text for _, text in part]), strict=True):
                    known[key] = passage_means(tokens).astype(np.float16)
                progress.advance(len(part))
                if start % 2_048 == 0 or start + 32 >= len(new):
                    _keep(path, known)
    return [known[key].astype(np.float32) for key in keys]


def by_scenario(states: Sequence[NDArray[np.float32]]) -> list[Sequence[NDArray[np.float32]]]:
    """Return the states of each scenario's texts, which lie behind one another."""
    return [states[start : start + EACH] for start in range(0, len(states), EACH)]


def _digest(updates: Mapping[str, NDArray[np.float32]]) -> str:
    named = (name.encode() + updates[name].astype(np.float16).tobytes() for name in sorted(updates))
    return hashlib.sha256(b"".join(named)).hexdigest()[:16]


def _keep(path: Path, known: dict[str, NDArray[np.float16]]) -> None:
    partial = path.with_suffix(".partial.npz")
    each = np.array([len(means) for means in known.values()])
    np.savez(partial, keys=np.array(list(known)), means=np.concatenate(list(known.values())), each=each)
    partial.replace(path)


def _length(item: tuple[str, str]) -> int:
    return len(item[1])
