"""What real models answered once, for `memaudit demo --recorded`: nothing is computed, and nothing else is answered.

    answers.json.gz   {"format": …, "models": {"backbone": id, "nli": id, "embedder": id},
                       "completions": {digest of the request: answer}, "entailment": {digest of the pair: [3 numbers]},
                       "embeddings": {digest of the text: base64 of little-endian float32}}

`python -m benchmarks.harness.record_demo` writes the file from a demo with real models. Only the specification
`recorded` loads these, and their ids say that they are recorded. A question that was not asked then is an error.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from memory_audit.errors import ModelError
from memory_audit.generation import Completion
from memory_audit.report.confidence import RECORDED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.generation import GenerationRequest

__all__ = [
    "RECORDED", "RecordedEmbedder", "RecordedEntailment", "RecordedGenerator", "pair_digest", "text_digest",
    "write_recording",
]  # fmt: skip

RECORDED = "recorded"

FILE = Path(__file__).parent / "data" / "demo_answers.json.gz"
FORMAT = "memaudit recorded answers v1"
_FLOAT = np.dtype("<f4")


def text_digest(text: str) -> str:
    """Name a text (128 bits of SHA-256, hex)."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def pair_digest(premise: str, hypothesis: str) -> str:
    """Name an ordered pair of texts, likewise."""
    return text_digest(json.dumps([premise, hypothesis]))


def write_recording(
    models: Mapping[str, str],
    completions: Mapping[str, Completion],
    entailment: Mapping[str, Sequence[float]],
    embeddings: Mapping[str, NDArray[np.float32]],
    path: Path = FILE,
) -> None:
    """Write what models answered.

    Args:
        models: Role (backbone, nli, embedder) to model id.
        completions: By the request's digest.
        entailment: Three probabilities, by `pair_digest`.
        embeddings: Shape (dimensions,), by `text_digest`.
        path: The file.
    """
    record = {
        "format": FORMAT, "models": dict(models),
        "completions": {key: msgspec.to_builtins(completions[key]) for key in sorted(completions)},
        "entailment": {key: [float(value) for value in entailment[key]] for key in sorted(entailment)},
        "embeddings": {
            key: base64.b64encode(embeddings[key].astype(_FLOAT).tobytes()).decode() for key in sorted(embeddings)
        },
    }  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(record, separators=(",", ":")).encode(), mtime=0))


@cache
def _recording() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return found


def _answer(kind: str, key: str) -> Any:
    try:
        return _recording()[kind][key]
    except KeyError:
        raise ModelError(
            f"no recorded answer to a question ({kind}): recorded are those of `memaudit demo --recorded` alone; "
            "name a real model"
        ) from None


def _model_id(role: str) -> str:
    """Return the id of the model that answered, which says that it is recorded."""
    return f"{RECORDED_PREFIX}{_recording()['models'][role]}"


class RecordedGenerator:
    """Implements `memory_audit.models.protocols.Generator`."""

    def __init__(self) -> None:
        self.model_id = _model_id("backbone")

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer a request that was asked when the answers were recorded; else raise ModelError."""
        return msgspec.convert(_answer("completions", request.digest()), Completion)

    async def close(self) -> None:
        """Nothing to release."""


class RecordedEntailment:
    """Implements `memory_audit.models.protocols.EntailmentModel`; raises ModelError like `RecordedGenerator`."""

    def __init__(self) -> None:
        self.model_id = _model_id("nli")

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Score pairs; see `memory_audit.models.protocols.EntailmentModel`."""
        rows = [_answer("entailment", pair_digest(*pair)) for pair in pairs]
        return np.asarray(rows, np.float32).reshape(len(pairs), 3)


class RecordedEmbedder:
    """Implements `memory_audit.models.protocols.Embedder`; raises ModelError like `RecordedGenerator`."""

    def __init__(self) -> None:
        self.model_id = _model_id("embedder")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see `memory_audit.models.protocols.Embedder`."""
        held: dict[str, str] = _recording()["embeddings"]
        dimensions = len(base64.b64decode(next(iter(held.values())))) // _FLOAT.itemsize
        rows = [np.frombuffer(base64.b64decode(_answer("embeddings", text_digest(text))), _FLOAT) for text in texts]
        return np.asarray(rows, np.float32).reshape(len(texts), dimensions)
