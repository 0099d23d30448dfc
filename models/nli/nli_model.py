"""Natural language inference with any Hugging Face classifier, on a CPU or a GPU.

Labels are mapped by name (`id2label`), never by position: models disagree on the order. Pairs are sorted by length;
results come back in the order given. A pair longer than `max_tokens`, or than the model has positions, is cut from the
end of its longer side, and `truncated` counts how many were.

| model | on a CPU | on a GPU |
|---|---|---|
| DeBERTa-v3 | `PackedEntailment`, bfloat16 where the processor multiplies in it, else float32 | the same, bfloat16 |
| any other | `TorchEntailment`, float32, batches padded little | the same, bfloat16 |

On a CPU a pair's score does not depend on what is asked with it. Int8 activations are not offered: with one scale a
batch a score moved by up to 0.18 with its batch, and with one a token labels changed whose margin was 0.08.
`benchmarks/systems/nli_throughput.py` compares labels and speed with float32.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memory_audit.errors import AuditError, UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.models.libraries.library_noise import without_bars
from memory_audit.models.libraries.telemetry import tell_nobody
from memory_audit.models.nli.packed_deberta import PackedDeberta, fits, length_packs
from memory_audit.models.text_tokens import read_as_text
from memory_audit.models.weights.cache import MAX_RECORD_BYTES, cannot_load, folder_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "COLUMNS", "PackedEntailment", "TorchEntailment", "label_columns", "length_batches", "load_nli", "parse_labels",
    "scoring_id",
]  # fmt: skip

COLUMNS = ("contradiction", "neutral", "entailment")
"""Columns of every result, see `memory_audit.models.protocols.EntailmentModel`."""

PACK_TOKENS = 1_024
"""Tokens of one pack on a CPU: as fast as 4,096 a core, and what a layer makes of them stays in its cache."""

BATCH_TOKENS = 2_048
"""Padded tokens in one batch on CPU: 20 pairs of 100 tokens fill the cores, and small batches pad little."""

GPU_BATCH_TOKENS = 65_536

_SEGMENTS = "token_type_ids"

_POSITIONS_AFTER_PADDING = frozenset({
    "camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mluke", "mpnet", "roberta",
    "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
})  # fmt: skip
"""Kinds of models that count positions from the one after the padding's id: so many of theirs are never used."""


def load_nli(folder: Path, *, gpu: bool) -> PackedEntailment | TorchEntailment:
    """Load the model of a folder as the table above says.

    Raises:
        UsageError: labels that are not those of NLI.
        ModelError: the folder cannot be loaded.
    """
    packed, dtype = _way(folder, gpu=gpu)
    kind = PackedEntailment if packed else TorchEntailment
    return kind(folder, device="cuda" if gpu else "cpu", dtype=dtype)


def scoring_id(folder: Path, *, gpu: bool) -> str:
    """Return the model id under which `load_nli` would score, without loading the model.

    Raises:
        UsageError: a `config.json` that cannot be read.
    """
    packed, dtype = _way(folder, gpu=gpu)
    return _scoring_id(folder, dtype, packed=packed)


class PackedEntailment:
    """Implements `memory_audit.models.protocols.EntailmentModel` for DeBERTa-v3; see `packed_deberta`.

    On a CPU each core works on a pack of its own: threads that share one wait for each other at each step, and on a
    machine with other work for those that do not run.

    Raises:
        UsageError: labels that are not those of NLI.
        ModelError: the folder cannot be loaded.
    """

    def __init__(self, folder: Path, *, device: str = "cpu", dtype: str = "bfloat16", max_tokens: int = 512) -> None:
        tell_nobody()
        self.model_id = _scoring_id(folder, dtype, packed=True)
        self.truncated = 0
        self._columns = label_columns(folder)
        self._tokenizer = _Tokenizer(folder, max_tokens)
        self._threads = len(os.sched_getaffinity(0)) if device == "cpu" else 1
        self._most = PACK_TOKENS if device == "cpu" else GPU_BATCH_TOKENS
        try:
            self._model = PackedDeberta(folder, device=device, dtype=dtype, max_tokens=self._tokenizer.limit)
        except Exception as error:
            raise cannot_load(folder, "the NLI model", error) from error
        self._pool = _lone_threads(self._threads)

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `memory_audit.models.protocols.EntailmentModel`."""
        rows = self._tokenizer.rows(pairs)
        self.truncated += self._tokenizer.truncated(rows)
        lengths = [len(row) for row in rows]
        packs = length_packs(lengths, min(self._most, -(-sum(lengths) // self._threads)))
        found = self._pool.map(lambda pack: self._model.logits([rows[index] for index in pack]), packs)
        result = np.zeros((len(pairs), len(COLUMNS)), np.float32)
        for pack, logits in zip(packs, found, strict=True):
            result[pack] = _softmax(logits)[:, self._columns]
        return result


class TorchEntailment:
    """Implements `memory_audit.models.protocols.EntailmentModel` with transformers' own model, padded.

    Raises:
        UsageError: labels that are not those of NLI.
        ModelError: the folder cannot be loaded.
    """

    def __init__(self, folder: Path, *, device: str = "cpu", dtype: str = "float32", max_tokens: int = 512) -> None:
        tell_nobody()
        import torch  # noqa: PLC0415
        from transformers import AutoModelForSequenceClassification  # noqa: PLC0415

        self.model_id = _scoring_id(folder, dtype, packed=False)
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
        self.truncated += self._tokenizer.truncated(encoded.ids)
        result = np.zeros((len(pairs), len(COLUMNS)), np.float32)
        with torch.inference_mode():
            for batch in length_batches([len(ids) for ids in encoded.ids], self._batch_tokens):
                given = self._tokenizer.padded(encoded, batch)
                logits = self._model(
                    **{name: torch.from_numpy(rows).to(self._device) for name, rows in given.items()}
                ).logits
                result[batch] = _softmax(logits.float().cpu().numpy())[:, self._columns]
        return result


def label_columns(folder: Path) -> list[int]:
    """Return the model's own columns of contradiction, neutral and entailment, read by name from `config.json`.

    Raises:
        UsageError: a label is missing, doubled or unknown; names what the model has.
    """
    return parse_labels(_config(folder), str(folder))


def parse_labels(data: bytes, where: str) -> list[int]:
    """Read the columns out of a `config.json`. Raises UsageError like `label_columns`."""
    try:
        named = _parsed(data, where).get("id2label", {}).items()
        labels = {str(label).strip().lower(): int(index) for index, label in named}
    except (ValueError, AttributeError) as error:
        raise _no_config(where, error) from None
    if set(labels) != set(COLUMNS) or sorted(labels.values()) != [0, 1, 2]:
        found = ", ".join(sorted(labels)) or "none"
        raise UsageError(
            f"{where}: labels are {found:.120}, expected contradiction, neutral and entailment; "
            "a two-label model cannot tell a contradiction from an unrelated pair: choose a three-way NLI model"
        )
    return [labels[column] for column in COLUMNS]


def _config(folder: Path) -> bytes:
    try:
        return read_regular(folder / "config.json", MAX_RECORD_BYTES)
    except OSError as error:
        raise _no_config(str(folder), error) from None


def _parsed(data: bytes, where: str) -> dict[str, Any]:
    try:
        return dict(json.loads(data).items())
    except (ValueError, RecursionError, AttributeError) as error:
        raise _no_config(where, error) from None


def _no_config(where: str, error: Exception) -> UsageError:
    return UsageError(f"{where}: no readable config.json ({error!s:.120}); give a Hugging Face NLI folder")


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
        self.limit = min(max_tokens, _positions(config) or max_tokens)
        self._pad_id = int(self._tokenizer.pad_token_id or 0)
        kinds = getattr(config, "type_vocab_size", 0) or 0
        self.segments = kinds > 1 and _SEGMENTS in self._tokenizer.model_input_names

    def encode(self, pairs: Sequence[tuple[str, str]]) -> _Encoded:
        if not pairs:
            return _Encoded([], None)
        encoded = self._tokenizer(
            [premise for premise, _ in pairs], [hypothesis for _, hypothesis in pairs],
            truncation="longest_first", max_length=self.limit, return_attention_mask=False,
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

    def rows(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """Return the tokens of pairs of a model that asks for no segments: those of `encode`, each text read once."""
        texts = list(dict.fromkeys(itertools.chain.from_iterable(pairs)))
        if not texts:
            return []
        read = self._tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
        known = dict(zip(texts, read["input_ids"], strict=True))
        begin, end = [self._tokenizer.cls_token_id], [self._tokenizer.sep_token_id]
        rows = []
        for premise, hypothesis in pairs:
            first, second = known[premise], known[hypothesis]
            most, rest = _kept(len(first), len(second), self.limit - 3)
            rows.append([*begin, *first[:most], *end, *second[:rest], *end])
        return rows

    def truncated(self, rows: Sequence[Sequence[int]]) -> int:
        """Count pairs at the limit: those cut, and the rare ones that fit exactly."""
        return sum(len(ids) >= self.limit for ids in rows)


def _positions(config: Any) -> int | None:
    """Return how many tokens a model has positions for; None where it does not say."""
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return None
    unused = (config.pad_token_id or 0) + 1 if config.model_type in _POSITIONS_AFTER_PADDING else 0
    return positions - unused


def _kept(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of each text of a pair are kept: the longer is cut, then both (`longest_first`)."""
    if first > second:
        return _kept(second, first, room)[::-1]
    first = min(first, room // 2)
    return first, min(second, room - first)


def _way(folder: Path, *, gpu: bool) -> tuple[bool, str]:
    """Return whether a folder's model is packed, and the type of its matrix products."""
    packed = fits(_parsed(_config(folder), str(folder)))
    return packed, "bfloat16" if gpu or (packed and _multiplies_bfloat16()) else "float32"


def _scoring_id(folder: Path, dtype: str, *, packed: bool) -> str:
    return f"{folder_id(folder)}+{'packed-' if packed else ''}{dtype}"


@cache
def _multiplies_bfloat16() -> bool:
    """Tell whether this processor has instructions for it; without, torch converts, and float32 is faster."""
    try:
        known = set(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return False
    return not known.isdisjoint({"avx512_bf16", "amx_bf16"})


def _lone_threads(count: int) -> ThreadPoolExecutor:
    """Return threads in each of which torch starts no others."""
    import torch  # noqa: PLC0415

    started = threading.Barrier(count + 1)

    def alone() -> None:
        torch.get_num_threads()  # at its first question a thread takes the process's number, at the next its own
        torch.set_num_threads(1)
        started.wait()

    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, "nli", initializer=alone)
    for _ in range(count):
        pool.submit(int)
    started.wait()
    torch.set_num_threads(before)  # setting it in a thread sets it for threads that are yet to come, too
    return pool


def _pad(rows: Sequence[Sequence[int]], filler: int) -> NDArray[np.int64]:
    padded = np.full((len(rows), max(map(len, rows))), filler, np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), np.float32)
