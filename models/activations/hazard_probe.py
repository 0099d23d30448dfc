"""Hazards read from activations: a linear probe for each label on a small backbone's hidden states.

A model knows more of a text than it says when asked: on texts of no benchmark a probe on the packaged 0.5B's twelfth
layer orders every label better than the yes or no of the 1.5B does (`python -m training.hazard_reading`;
`training.hazard_probing` fits it). Nothing is asked, so nothing in a record can answer: it is read as "Note:" and its
text, and the states of its tokens are averaged. Long records are read in windows, of which the worst counts.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Protocol

import numpy as np

from memory_audit.errors import UsageError
from memory_audit.models.activations.hidden_states import BACKBONE, READING, packaged_states
from memory_audit.models.weights.cache import folder_id
from memory_audit.models.weights.coder import coder_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["PROBE_FILE", "HazardProbe", "Probe", "read_probe"]

PROBE_FILE = "hazard_probe.npz"


class Probe(Protocol):
    """Reads hazards without being asked."""

    model_id: str
    labels: tuple[str, ...]

    def log_odds(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return log-odds in nats, shape (texts, labels)."""
        ...


class HazardProbe:
    """Implements `Probe` with the packaged probe on the packaged backbone, loaded when the first text is read.

    Raises:
        UsageError: the packaged backbone is not there.
    """

    def __init__(self) -> None:
        self._weights, self._bias, self.labels, digest = read_probe()
        self.model_id = f"{folder_id(coder_folder(BACKBONE))}+probe-{READING}-{digest}"

    def log_odds(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return log-odds in nats, shape (texts, labels): of each label the largest over a text's windows."""
        read = [(means @ self._weights.T + self._bias).max(axis=0) for means in packaged_states().means(texts)]
        return np.asarray(read, np.float32).reshape(len(texts), len(self._bias))


def read_probe() -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[str, ...], str]:
    """Return the packaged probe: weights (labels, hidden), bias (labels,), the labels, and a short digest of all.

    Raises:
        UsageError: the file is not a probe.
    """
    raw = files("memory_audit.models").joinpath("data", PROBE_FILE)
    with raw.open("rb") as file, np.load(file, allow_pickle=False) as data:
        weights, bias = np.asarray(data["weights"], np.float32), np.asarray(data["bias"], np.float32)
        labels = tuple(str(name) for name in data["labels"])
    if weights.shape[:-1] != bias.shape or bias.shape != (len(labels),):
        raise UsageError(f"{PROBE_FILE}: {weights.shape}, {bias.shape} and {len(labels)} labels are not of one probe")
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise UsageError(f"{PROBE_FILE}: a weight is no number")
    data_read = weights.tobytes() + bias.tobytes() + ",".join(labels).encode()
    return weights, bias, labels, hashlib.sha256(data_read).hexdigest()[:16]
