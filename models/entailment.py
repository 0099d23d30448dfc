"""Natural language inference with any Hugging Face classifier: int8 ONNX Runtime on a CPU, torch bf16 on a GPU.

Labels are mapped by name (`id2label`), never by position: models disagree on the order. Pairs are sorted by length and
batched by tokens, so padding costs little; results come back in the order given. A pair longer than `max_tokens` is
cut from the end of its longer side, and `truncated` counts how many were.

Which one runs: int8 on a CPU, bf16 on a GPU. Measured on a busy two-core machine (`benchmarks/nli_throughput.py`), int8
scored 1.6 times as many pairs a second; bf16 stays nearer to float32 (0.002 against 0.034 in the contradiction
probability on average, rank correlation 1.00 against 0.97). Int8 activations share one scale per batch, so int8 results
also move by a few hundredths with a pair's batch mates.
"""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from audit.errors import ModelError, UsageError
from models.library_noise import without_bars
from models.onnx_export import INT8_GRAPH, export_int8_in_subprocess
from models.telemetry import tell_nobody
from models.weights_cache import DIGEST_FILE, cache_dir, folder_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["COLUMNS", "OnnxEntailment", "TorchEntailment", "label_columns", "length_batches", "parse_labels"]

COLUMNS = ("contradiction", "neutral", "entailment")
"""Columns of every result, see `models.protocols.EntailmentModel`."""

BATCH_TOKENS = 2_048
"""Padded tokens in one batch on CPU: 20 pairs of 100 tokens fill the cores, and small batches pad little."""

GPU_BATCH_TOKENS = 65_536


class OnnxEntailment:
    """Implements `models.protocols.EntailmentModel` with an int8 graph in ONNX Runtime.

    Args:
        folder: A Hugging Face folder. Without an int8 graph in it, one is exported once into the cache.
        threads: Of ONNX Runtime; 0 takes all cores.
        max_tokens: Of a pair, special tokens included.

    Raises:
        UsageError: labels that are not those of NLI.
        ModelError: the folder cannot be loaded or exported.
    """

    def __init__(self, folder: Path, *, threads: int = 0, max_tokens: int = 512) -> None:
        tell_nobody()
        import onnxruntime  # noqa: PLC0415 - only this kind of model pays for it

        self.model_id = f"{folder_id(folder)}+int8"
        self.truncated = 0
        self._columns = label_columns(folder)
        self._tokenizer = _Tokenizer(folder, max_tokens)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(
            str(_int8_graph(folder)), options, providers=["CPUExecutionProvider"]
        )

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `models.protocols.EntailmentModel`."""
        encoded = self._tokenizer.encode(pairs)
        self.truncated += self._tokenizer.truncated(encoded)
        result = np.zeros((len(pairs), len(COLUMNS)), np.float32)
        for batch in length_batches([len(ids) for ids in encoded], BATCH_TOKENS):
            ids, mask = _pad([encoded[index] for index in batch], self._tokenizer.pad_id)
            logits = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
            result[batch] = _softmax(logits)[:, self._columns]
        return result


class TorchEntailment:
    """Implements `models.protocols.EntailmentModel` with torch in bf16, on a GPU or on a CPU with AMX.

    Raises:
        UsageError: labels that are not those of NLI.
        ModelError: the folder cannot be loaded.
    """

    def __init__(self, folder: Path, *, device: str = "cuda", dtype: str = "bfloat16", max_tokens: int = 512) -> None:
        tell_nobody()
        import torch  # noqa: PLC0415
        from transformers import AutoModelForSequenceClassification  # noqa: PLC0415

        self.model_id = f"{folder_id(folder)}+{dtype}"
        self.truncated = 0
        self._columns = label_columns(folder)
        self._tokenizer = _Tokenizer(folder, max_tokens)
        self._device = device
        self._batch_tokens = BATCH_TOKENS if device == "cpu" else GPU_BATCH_TOKENS
        try:
            with warnings.catch_warnings(), without_bars():
                warnings.simplefilter("ignore", DeprecationWarning)  # transformers' DeBERTa still scripts its helpers
                model: Any = AutoModelForSequenceClassification.from_pretrained(folder, dtype=getattr(torch, dtype))
            self._model = model.to(device).eval()
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelError(f"{folder}: cannot load the NLI model ({error!s:.200})") from error

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `models.protocols.EntailmentModel`."""
        import torch  # noqa: PLC0415

        encoded = self._tokenizer.encode(pairs)
        self.truncated += self._tokenizer.truncated(encoded)
        result = np.zeros((len(pairs), len(COLUMNS)), np.float32)
        with torch.inference_mode():
            for batch in length_batches([len(ids) for ids in encoded], self._batch_tokens):
                ids, mask = _pad([encoded[index] for index in batch], self._tokenizer.pad_id)
                logits = self._model(
                    input_ids=torch.from_numpy(ids).to(self._device),
                    attention_mask=torch.from_numpy(mask).to(self._device),
                ).logits
                result[batch] = _softmax(logits.float().cpu().numpy())[:, self._columns]
        return result


def label_columns(folder: Path) -> list[int]:
    """Return the model's own columns of contradiction, neutral and entailment, read by name from `config.json`.

    Raises:
        UsageError: a label is missing, doubled or unknown; names what the model has.
    """
    try:
        data = (folder / "config.json").read_bytes()
    except OSError as error:
        raise UsageError(
            f"{folder}: no readable config.json ({error!s:.120}); give a Hugging Face NLI folder"
        ) from None
    return parse_labels(data, str(folder))


def parse_labels(data: bytes, where: str) -> list[int]:
    """Read the columns out of a `config.json`. Raises UsageError like `label_columns`."""
    try:
        config: Any = json.loads(data)
        labels = {str(label).strip().lower(): int(index) for index, label in config.get("id2label", {}).items()}
    except (ValueError, RecursionError, AttributeError) as error:
        raise UsageError(f"{where}: no readable config.json ({error!s:.120}); give a Hugging Face NLI folder") from None
    if set(labels) != set(COLUMNS) or sorted(labels.values()) != [0, 1, 2]:
        found = ", ".join(sorted(labels)) or "none"
        raise UsageError(
            f"{where}: labels are {found:.120}, expected contradiction, neutral and entailment; "
            "a two-label model cannot tell a contradiction from an unrelated pair: choose a three-way NLI model"
        )
    return [labels[column] for column in COLUMNS]


def length_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Group indices by length so that no batch has more than `batch_tokens` padded tokens (one pair always fits).

    Longest first: memory peaks in the first batch, not hours into a run.
    """
    batches: list[list[int]] = []
    current: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if current and lengths[current[0]] * (len(current) + 1) > batch_tokens:
            batches.append(current)
            current = []
        current.append(index)
    return [*batches, current] if current else batches


class _Tokenizer:
    """The model's fast tokenizer, without padding: batches are padded once their members are known."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        from transformers import AutoTokenizer  # noqa: PLC0415

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError) as error:
            raise ModelError(f"{folder}: cannot load the tokenizer ({error!s:.200})") from error
        self._limit = max_tokens
        self.pad_id = int(self._tokenizer.pad_token_id or 0)

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        if not pairs:
            return []
        encoded: list[list[int]] = self._tokenizer(
            [premise for premise, _ in pairs], [hypothesis for _, hypothesis in pairs],
            truncation="longest_first", max_length=self._limit, return_attention_mask=False,
        )["input_ids"]  # fmt: skip
        return encoded

    def truncated(self, encoded: list[list[int]]) -> int:
        """Count pairs at the limit: those cut, and the rare ones that fit exactly."""
        return sum(len(ids) >= self._limit for ids in encoded)


def _int8_graph(folder: Path) -> Path:
    own = folder / INT8_GRAPH
    if own.is_file():
        return own
    if (folder / DIGEST_FILE).is_file():
        raise ModelError(f"{own}: missing from a packaged model; delete {folder} and start again")
    exported = cache_dir() / "onnx" / folder_id(folder).replace("@", "-") / INT8_GRAPH
    if not exported.is_file():
        exported.parent.mkdir(parents=True, exist_ok=True)
        export_int8_in_subprocess(folder, exported)
    return exported


def _pad(rows: list[list[int]], pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    width = max(len(row) for row in rows)
    ids = np.full((len(rows), width), pad_id, np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return ids, mask


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), np.float32)
