"""Natural language inference with any Hugging Face classifier: int8 ONNX Runtime on a CPU, torch bf16 on a GPU.

Labels are mapped by name (`id2label`), never by position: models disagree on the order. Pairs are sorted by length and
batched by tokens, so padding costs little; results come back in the order given. A pair longer than `max_tokens`, or
than the model has positions, is cut from the end of its longer side, and `truncated` counts how many were.

Which one runs: int8 on a CPU, bf16 on a GPU. Measured on a busy two-core machine
(`benchmarks/systems/nli_throughput.py`), int8 scored 1.6 times as many pairs a second; bf16 stays nearer to float32
(0.002 against 0.034 in the contradiction probability on average, rank correlation 1.00 against 0.97). Int8 activations
share one scale per batch, so int8 results also move by a few hundredths with a pair's batch mates.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memory_audit.errors import AuditError, ModelError, UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.models.library_noise import without_bars
from memory_audit.models.telemetry import tell_nobody
from memory_audit.models.text_tokens import read_as_text
from memory_audit.models.weights.cache import MAX_RECORD_BYTES, cache_dir, cannot_load, folder_id, is_packaged, locked
from memory_audit.models.weights.onnx_export import INT8_GRAPH, export_int8_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "COLUMNS", "OnnxEntailment", "TorchEntailment", "label_columns", "length_batches", "parse_labels", "scoring_id",
]  # fmt: skip

COLUMNS = ("contradiction", "neutral", "entailment")
"""Columns of every result, see `memory_audit.models.protocols.EntailmentModel`."""

BATCH_TOKENS = 2_048
"""Padded tokens in one batch on CPU: 20 pairs of 100 tokens fill the cores, and small batches pad little."""

GPU_BATCH_TOKENS = 65_536

_SEGMENTS = "token_type_ids"

_POSITIONS_AFTER_PADDING = frozenset({
    "camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mluke", "mpnet", "roberta",
    "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
})  # fmt: skip
"""Kinds of models that count positions from the one after the padding's id: so many of theirs are never used."""


class OnnxEntailment:
    """Implements `memory_audit.models.protocols.EntailmentModel` with an int8 graph in ONNX Runtime.

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

        self.model_id = scoring_id(folder, "int8")
        self.truncated = 0
        self._columns = label_columns(folder)
        self._tokenizer = _Tokenizer(folder, max_tokens)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
        options.log_severity_level = 3
        graph = _int8_graph(folder, segments=self._tokenizer.segments)
        try:
            self._session: Any = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise cannot_load(folder if graph.parent == folder else graph, "its int8 graph", error) from error
        self._takes_segments = _SEGMENTS in {item.name for item in self._session.get_inputs()}
        if self._tokenizer.segments and not self._takes_segments:
            raise ModelError(
                f"{graph}: takes no {_SEGMENTS}, by which this model tells premise from hypothesis; delete that file, "
                "and one that does is exported"
            )

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `memory_audit.models.protocols.EntailmentModel`."""
        encoded = self._tokenizer.encode(pairs)
        self.truncated += self._tokenizer.truncated(encoded)
        result = np.zeros((len(pairs), len(COLUMNS)), np.float32)
        for batch in length_batches([len(ids) for ids in encoded.ids], BATCH_TOKENS):
            given = self._tokenizer.padded(encoded, batch)
            if self._takes_segments and _SEGMENTS not in given:
                given[_SEGMENTS] = np.zeros_like(given["input_ids"])
            logits = self._session.run(None, given)[0]
            result[batch] = _softmax(logits)[:, self._columns]
        return result


class TorchEntailment:
    """Implements `memory_audit.models.protocols.EntailmentModel` with torch in bf16, on a GPU or on a CPU with AMX.

    Raises:
        UsageError: labels that are not those of NLI.
        ModelError: the folder cannot be loaded.
    """

    def __init__(self, folder: Path, *, device: str = "cuda", dtype: str = "bfloat16", max_tokens: int = 512) -> None:
        tell_nobody()
        import torch  # noqa: PLC0415
        from transformers import AutoModelForSequenceClassification  # noqa: PLC0415

        self.model_id = scoring_id(folder, dtype)
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
        except Exception as error:
            raise cannot_load(folder, "the NLI model", error) from error

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `memory_audit.models.protocols.EntailmentModel`."""
        import torch  # noqa: PLC0415

        encoded = self._tokenizer.encode(pairs)
        self.truncated += self._tokenizer.truncated(encoded)
        result = np.zeros((len(pairs), len(COLUMNS)), np.float32)
        with torch.inference_mode():
            for batch in length_batches([len(ids) for ids in encoded.ids], self._batch_tokens):
                given = self._tokenizer.padded(encoded, batch)
                logits = self._model(
                    **{name: torch.from_numpy(rows).to(self._device) for name, rows in given.items()}
                ).logits
                result[batch] = _softmax(logits.float().cpu().numpy())[:, self._columns]
        return result


def scoring_id(folder: Path, precision: str) -> str:
    """Return the model id under which the model in a folder scores."""
    return f"{folder_id(folder)}+{precision}"


def label_columns(folder: Path) -> list[int]:
    """Return the model's own columns of contradiction, neutral and entailment, read by name from `config.json`.

    Raises:
        UsageError: a label is missing, doubled or unknown; names what the model has.
    """
    try:
        data = read_regular(folder / "config.json", MAX_RECORD_BYTES)
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


class _Encoded(NamedTuple):
    """Pairs as tokens, one row each, not padded yet."""

    ids: list[list[int]]
    segments: list[list[int]] | None
    """Which tokens are the premise's (0) and which the hypothesis's (1); None where the model does not ask."""


class _Tokenizer:
    """The model's fast tokenizer, without padding: batches are padded once their members are known."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
            read_as_text(self._tokenizer)
            config: Any = AutoConfig.from_pretrained(folder)
        except AuditError:
            raise
        except Exception as error:
            raise cannot_load(folder, "the tokenizer", error) from error
        self._limit = min(max_tokens, _positions(config) or max_tokens)
        self._pad_id = int(self._tokenizer.pad_token_id or 0)
        kinds = getattr(config, "type_vocab_size", 0) or 0
        self.segments = kinds > 1 and _SEGMENTS in self._tokenizer.model_input_names

    def encode(self, pairs: Sequence[tuple[str, str]]) -> _Encoded:
        if not pairs:
            return _Encoded([], None)
        encoded = self._tokenizer(
            [premise for premise, _ in pairs], [hypothesis for _, hypothesis in pairs],
            truncation="longest_first", max_length=self._limit, return_attention_mask=False,
            return_token_type_ids=self.segments,
        )  # fmt: skip
        return _Encoded(encoded["input_ids"], encoded[_SEGMENTS] if self.segments else None)

    def padded(self, encoded: _Encoded, batch: Sequence[int]) -> dict[str, NDArray[np.int64]]:
        """Return what the model is given for a batch of rows, by the names of its inputs."""
        rows = [encoded.ids[index] for index in batch]
        given = {"input_ids": _pad(rows, self._pad_id), "attention_mask": _pad([[1] * len(row) for row in rows], 0)}
        if encoded.segments is not None:
            given[_SEGMENTS] = _pad([encoded.segments[index] for index in batch], 0)
        return given

    def truncated(self, encoded: _Encoded) -> int:
        """Count pairs at the limit: those cut, and the rare ones that fit exactly."""
        return sum(len(ids) >= self._limit for ids in encoded.ids)


def _positions(config: Any) -> int | None:
    """Return how many tokens a model has positions for; None where it does not say."""
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return None
    unused = (config.pad_token_id or 0) + 1 if config.model_type in _POSITIONS_AFTER_PADDING else 0
    return positions - unused


def _int8_graph(folder: Path, *, segments: bool) -> Path:
    own = folder / INT8_GRAPH
    if own.is_file():
        return own
    if is_packaged(folder):
        raise ModelError(f"{own}: missing from a packaged model; delete {folder} and start again")
    name = folder_id(folder).replace("@", "-")
    exported = cache_dir() / "onnx" / name / INT8_GRAPH
    if not exported.is_file():
        with locked(f"onnx-{name}", exported.parent):
            if not exported.is_file():  # another process may have been faster
                for leftover in exported.parent.glob(".export-*"):  # of one that was killed
                    shutil.rmtree(leftover)
                export_int8_in_subprocess(folder, exported, segments=segments)
    return exported


def _pad(rows: Sequence[Sequence[int]], filler: int) -> NDArray[np.int64]:
    padded = np.full((len(rows), max(map(len, rows))), filler, np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), np.float32)
