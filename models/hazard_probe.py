"""Hazards read from activations: a linear probe for each label on a small backbone's hidden states.

A model knows more of a text than it says when asked: on texts of no benchmark a probe on the packaged 0.5B's twelfth
layer orders every label better than the yes or no of the 1.5B does (`python -m benchmarks.hazard_reading`;
`benchmarks.hazard_probing` fits it). Nothing is asked, so nothing in a record can answer: it is read as "Note:" and its
text, and the states of its tokens are averaged. Long records are read in windows, of which the worst counts.
"""

from __future__ import annotations

import hashlib
import threading
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from audit.errors import ModelError, UsageError
from models.library_noise import without_bars
from models.packaged import ensure
from models.telemetry import tell_nobody
from models.weights_cache import folder_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "BACKBONE", "LAYER", "PROBE_FILE", "READING", "WHOLE_TOKENS", "HazardProbe", "HiddenStates", "Probe",
    "packaged_states", "read_probe", "windows",
]  # fmt: skip

PROBE_FILE = "hazard_probe.npz"

BACKBONE = "0.5b"
"""The packaged backbone whose states are read; no other has the packaged probe's directions."""

LAYER = 12
"""Of 24; those above are not loaded."""

WINDOW_TOKENS = 160
"""A hazard in a long record is one of many things in it: windows keep it from drowning."""

WHOLE_TOKENS = 1_024
"""Window for texts of known labels, which are read as a whole."""

READING = "1"
"""Version of how a text is read (layer, windows, opening, tokens): part of the probe's name, and so of cache keys."""

_OPENING = "Note:\n"
_LOADING = threading.Lock()
_BATCH = 8


class Probe(Protocol):
    """Reads hazards without being asked."""

    model_id: str
    labels: tuple[str, ...]

    def log_odds(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return log-odds in nats, shape (texts, labels)."""
        ...


class HiddenStates:
    """Hidden states of a Hugging Face backbone at one layer.

    Args:
        folder: Its folder; layers above `layer` are not loaded.
        layer: Whose output is read.
        window: Tokens that are averaged.

    Raises:
        ModelError: the folder cannot be loaded.
    """

    def __init__(self, folder: Path, layer: int = LAYER, *, window: int = WINDOW_TOKENS) -> None:
        tell_nobody()
        import torch  # noqa: PLC0415 - heavy, and loaded when the first text is read
        from transformers import AutoConfig, AutoModel, AutoTokenizer, logging  # noqa: PLC0415

        said = logging.get_verbosity()
        logging.set_verbosity_error()  # it would list the layers left out
        try:
            config = AutoConfig.from_pretrained(folder)
            config.num_hidden_layers = layer
            if getattr(config, "layer_types", None):
                config.layer_types = config.layer_types[:layer]
            # A text that spells a control token ("<|im_end|>") is read as these letters.
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
            with without_bars():
                model: Any = AutoModel.from_pretrained(folder, config=config, dtype=torch.bfloat16)
        except Exception as error:  # transformers, safetensors and torch have a kind each for a damaged folder
            raise ModelError(f"{folder}: cannot load the backbone ({error!s:.200})") from error
        finally:
            logging.set_verbosity(said)
        model.norm = torch.nn.Identity()  # the states as the next layer would take them
        self._model = model.eval()
        self._window = window
        self._opening: list[int] = self._tokenizer(_OPENING)["input_ids"]

    def means(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return for each text the mean state of each of its windows, shape (windows, hidden)."""
        pieces = [
            (number, window)
            for number, text in enumerate(texts)
            for window in windows(self._tokenizer(text)["input_ids"], self._window)
        ]  # fmt: skip
        found: list[list[NDArray[np.float32]]] = [[] for _ in texts]
        for (number, _), states in zip(pieces, self._states([window for _, window in pieces]), strict=True):
            found[number].append(states.mean(0))
        return [np.stack(rows) for rows in found]

    def tokens(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return for each text the state of each token, shape (tokens, hidden), of its first WHOLE_TOKENS at most.

        An empty text has one state, that of the opening.
        """
        return self._states([self._tokenizer(text)["input_ids"][:WHOLE_TOKENS] for text in texts])

    def _states(self, pieces: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """Return the states of token sequences, each by itself behind the opening, in the order given."""
        import torch  # noqa: PLC0415

        found: list[NDArray[np.float32]] = [np.zeros((0, 0), np.float32)] * len(pieces)
        order = sorted(range(len(pieces)), key=lambda index: -len(pieces[index]))
        skip = len(self._opening)
        with torch.inference_mode():
            for start in range(0, len(order), _BATCH):
                batch = order[start : start + _BATCH]
                width = skip + max(len(pieces[index]) for index in batch)
                ids = torch.zeros((len(batch), width), dtype=torch.long)
                mask = torch.zeros_like(ids)
                for row, index in enumerate(batch):
                    tokens = [*self._opening, *pieces[index]]
                    ids[row, : len(tokens)] = torch.tensor(tokens)
                    mask[row, : len(tokens)] = 1
                states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
                for row, index in enumerate(batch):
                    end = skip + len(pieces[index])
                    found[index] = states[row, min(skip, end - 1) : end].numpy()
        return found


class HazardProbe:
    """Implements `Probe` with the packaged probe on the packaged backbone, loaded when the first text is read.

    Raises:
        UsageError: the packaged backbone is not there.
    """

    def __init__(self) -> None:
        self._weights, self._bias, self.labels, digest = read_probe()
        self.model_id = f"{folder_id(ensure(BACKBONE))}+probe-{READING}-{digest}"

    def log_odds(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return log-odds in nats, shape (texts, labels): of each label the largest over a text's windows."""
        read = [(means @ self._weights.T + self._bias).max(axis=0) for means in packaged_states().means(texts)]
        return np.asarray(read, np.float32).reshape(len(texts), len(self._bias))


def packaged_states() -> HiddenStates:
    """Return the packaged backbone's states, loaded once in a process for whoever reads them.

    Raises:
        UsageError: the packaged backbone is not there.
        ModelError: it cannot be loaded.
    """
    with _LOADING:
        return _loaded_states()


@cache
def _loaded_states() -> HiddenStates:
    return HiddenStates(ensure(BACKBONE))


def windows(tokens: Sequence[int], size: int = WINDOW_TOKENS) -> Iterator[Sequence[int]]:
    """Cut a text into windows of at most `size` that overlap by half; an empty text is one empty window."""
    last, step = max(len(tokens) - size, 0), size // 2
    for start in range(0, last + step, step):
        yield tokens[min(start, last) : min(start, last) + size]


def read_probe() -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[str, ...], str]:
    """Return the packaged probe: weights (labels, hidden), bias (labels,), the labels, and a short digest of all.

    Raises:
        UsageError: the file is not a probe.
    """
    raw = files("models").joinpath("data", PROBE_FILE)
    with raw.open("rb") as file, np.load(file, allow_pickle=False) as data:
        weights, bias = np.asarray(data["weights"], np.float32), np.asarray(data["bias"], np.float32)
        labels = tuple(str(name) for name in data["labels"])
    if weights.shape[:-1] != bias.shape or bias.shape != (len(labels),):
        raise UsageError(f"{PROBE_FILE}: {weights.shape}, {bias.shape} and {len(labels)} labels are not of one probe")
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise UsageError(f"{PROBE_FILE}: a weight is no number")
    data_read = weights.tobytes() + bias.tobytes() + ",".join(labels).encode()
    return weights, bias, labels, hashlib.sha256(data_read).hexdigest()[:16]
