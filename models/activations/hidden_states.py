"""Hidden states of a small backbone, which know more of a text than the model says when asked.

Nothing is asked, so nothing in a text can answer: it is read as "Note:" and its text.
"""

from __future__ import annotations

import copy
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from memory_audit.errors import AuditError, ModelError
from memory_audit.models.libraries.library_noise import without_bars
from memory_audit.models.libraries.telemetry import tell_nobody
from memory_audit.models.text_tokens import read_as_text
from memory_audit.models.weights.coder import coder_folder
from memory_audit.models.weights.packed_weights import packed_layers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import torch
    from numpy.typing import NDArray

    from memory_audit.models.activations.packing import Rows

__all__ = [
    "BACKBONE", "BATCH", "LAYER", "READING", "WHOLE_TOKENS", "WINDOW_TOKENS", "HiddenStates", "packaged_states",
    "windows",
]  # fmt: skip

BACKBONE = "0.5b"
"""Whose states are read where no other is named; the packaged probe's directions are of them."""

LAYER = 12
"""Of 24; those above are not loaded."""

WINDOW_TOKENS = 160
"""A hazard in a long record is one of many things in it: windows keep it from drowning."""

WHOLE_TOKENS = 1_024
"""Window for texts of known labels, which are read as a whole."""

READING = "1"
"""Version of how a text is read (layer, windows, opening, tokens): part of the probe's name, and so of cache keys."""

_OPENING = "Note:\n"
_LOADING: dict[tuple[str, int], threading.Lock] = {}
"""Of each backbone and layer one: who reads the small one does not wait while another loads the large one."""

_FAILED: dict[tuple[str, int], tuple[float, AuditError]] = {}
"""When each last could not be loaded, in seconds of the monotonic clock, and why."""

TRIED_AGAIN_S = 60.0
"""How long one that could not be loaded is not tried again: a guard would try for every text."""

BATCH = 8
"""Rows of a step."""


class HiddenStates:
    """Hidden states of a Hugging Face backbone at one layer.

    Args:
        folder: Its folder; layers above `layer` are not loaded.
        layer: Whose output is read.
        window: Tokens that are averaged.

    Raises:
        ModelError: the folder cannot be loaded.
    """

    device = "cpu"

    def __init__(self, folder: Path, layer: int = LAYER, *, window: int = WINDOW_TOKENS) -> None:
        tell_nobody()
        import torch  # noqa: PLC0415 - heavy, and loaded when the first text is read
        from transformers import AutoConfig, AutoModel, AutoTokenizer, Qwen2Model, logging  # noqa: PLC0415

        said = logging.get_verbosity()
        logging.set_verbosity_error()  # it would list the layers left out
        try:
            config = AutoConfig.from_pretrained(folder)
            config.num_hidden_layers = layer
            if getattr(config, "layer_types", None):
                config.layer_types = config.layer_types[:layer]
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
            read_as_text(self._tokenizer)
            weights = packed_layers(folder, layer)
            with without_bars():
                model: Any = (AutoModel if weights is None else Qwen2Model).from_pretrained(
                    folder if weights is None else None, config=config, state_dict=weights, dtype=torch.bfloat16,
                    attn_implementation="sdpa",
                )  # fmt: skip
        except AuditError:
            raise
        except Exception as error:  # transformers, safetensors and torch have a kind each for a damaged folder
            raise ModelError(f"{folder}: cannot load the backbone ({error!s:.200})") from error
        finally:
            logging.set_verbosity(said)
        model.norm = torch.nn.Identity()  # the states as the next layer would take them
        self._model = model.eval().requires_grad_(requires_grad=False)
        self._window = window
        self._both_ways = False
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
        return self._states(self._whole(texts))

    def updated(self, updates: Mapping[str, torch.Tensor], *, both_ways: bool = True) -> Self:
        """Return the states of the same backbone with low-rank updates; it shares all weights with this one.

        Args:
            updates: See `memory_audit.models.activations.low_rank.with_updates`.
            both_ways: Tokens of a text attend to those that follow as well, in the layers with updates
                (BehnamGhader et al. 2024).

        Raises:
            ModelError: they do not fit the backbone.
        """
        from memory_audit.models.activations.low_rank import with_updates  # noqa: PLC0415 - loads torch
        from memory_audit.models.activations.packing import BOTH_WAYS  # noqa: PLC0415 - likewise

        twin = copy.copy(self)
        model = twin._model = with_updates(self._model, updates)  # noqa: SLF001
        if both_ways:
            changed = {int(name.partition(".")[0]) for name in updates}
            model.config = copy.copy(model.config)
            model.config.layer_types = [
                BOTH_WAYS if layer in changed else kind for layer, kind in enumerate(model.config.layer_types)
            ]  # fmt: skip
            twin._both_ways = True  # noqa: SLF001
        return twin

    def _whole(self, texts: Sequence[str]) -> list[Sequence[int]]:
        return [tokens[:WHOLE_TOKENS] for tokens in self._tokenizer(list(texts))["input_ids"]] if texts else []

    def _states(self, pieces: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        import torch  # noqa: PLC0415

        with torch.inference_mode():
            return [states.cpu().numpy() for states in self._tensors(pieces)]

    def _tensors(self, pieces: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Return the states of token sequences, each by itself behind the opening, in the order given."""
        import torch  # noqa: PLC0415

        from memory_audit.models.activations.packing import Rows  # noqa: PLC0415 - loads torch

        found = [torch.empty(0, 0)] * len(pieces)
        texts = [[*self._opening, *piece] for piece in pieces]
        for numbers in self._steps([len(tokens) for tokens in texts]):
            rows = Rows.of([[texts[number] for number in row] for row in numbers], len(self._opening), self.device)
            states = self._model(
                input_ids=rows.ids, position_ids=rows.place, attention_mask=self._seen(rows), use_cache=False
            ).last_hidden_state.float()  # fmt: skip
            order = [number for row in numbers for number in row]
            sizes = [max(1, len(pieces[number])) for number in order]
            for number, part in zip(order, states[rows.read].split(sizes), strict=True):
                found[number] = part
        return found

    def _steps(self, lengths: Sequence[int]) -> Iterator[list[list[int]]]:
        """Yield the numbers of the texts in each row of a step, longest first: one in each, so little is padding."""
        order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
        for start in range(0, len(order), BATCH):
            yield [[number] for number in order[start : start + BATCH]]

    def _seen(self, rows: Rows) -> Any:
        """Return the mask of what tokens see, or what is no padding, of which the backbone makes its causal mask."""
        return rows.masks() if self._both_ways else (rows.text > 0).long()


def packaged_states(backbone: str = BACKBONE, layer: int = LAYER) -> HiddenStates:
    """Return a backbone's states, loaded once in a process for whoever reads them.

    Args:
        backbone: Which of `memory_audit.models.weights.coder.CODERS`.
        layer: Whose output is read.

    Raises:
        UsageError: the packaged backbone is not there.
        ModelError: it cannot be loaded, or could not a short while ago.
    """
    place = backbone, layer
    with _LOADING.setdefault(place, threading.Lock()):
        failed = _FAILED.get(place)
        if failed is not None and time.monotonic() - failed[0] < TRIED_AGAIN_S:
            raise type(failed[1])(*failed[1].args)
        try:
            return _loaded_states(backbone, layer)
        except AuditError as error:
            _FAILED[place] = time.monotonic(), error.with_traceback(None)
            raise


@cache
def _loaded_states(backbone: str, layer: int) -> HiddenStates:
    return HiddenStates(coder_folder(backbone), layer)


def windows(tokens: Sequence[int], size: int = WINDOW_TOKENS) -> Iterator[Sequence[int]]:
    """Cut a text into windows of at most `size` that overlap by half; an empty text is one empty window."""
    last, step = max(len(tokens) - size, 0), size // 2
    for start in range(0, last + step, step):
        yield tokens[min(start, last) : min(start, last) + size]
