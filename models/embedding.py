"""Sentence embeddings with any sentence-transformers model: unit norm, batched by length, in the order given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memory_audit.errors import AuditError
from memory_audit.models.libraries.library_noise import without_bars
from memory_audit.models.libraries.telemetry import tell_nobody
from memory_audit.models.text_tokens import read_as_text
from memory_audit.models.weights.cache import cannot_load, folder_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["SentenceEmbedder"]

BATCH_TEXTS = 32

ROUNDING = 1e-5
"""How far a norm may be from 1: one of float32 is nearer, so that its vectors are left as they are to the last bit."""


class SentenceEmbedder:
    """Implements `protocols.Embedder` with sentence-transformers, which sorts by length before it batches.

    Raises:
        ModelError: the folder cannot be loaded.
    """

    def __init__(self, folder: Path, *, device: str = "cpu") -> None:
        tell_nobody()
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - takes seconds to import
        from tokenizers import Tokenizer  # noqa: PLC0415 - likewise
        from transformers import PreTrainedTokenizerBase  # noqa: PLC0415 - likewise

        self.model_id = folder_id(folder)
        try:
            with without_bars():
                self._model: Any = SentenceTransformer(str(folder), device=device, local_files_only=True)
            for part in self._model.modules():
                tokenizer = getattr(part, "tokenizer", None)
                if isinstance(tokenizer, PreTrainedTokenizerBase | Tokenizer):  # others have no control tokens
                    read_as_text(tokenizer)
        except AuditError:
            raise
        except Exception as error:
            raise cannot_load(folder, "the embedding model", error) from error

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see `memory_audit.models.protocols.Embedder`."""
        if not texts:
            return np.zeros((0, int(self._model.get_embedding_dimension())), np.float32)
        vectors = self._model.encode(
            list(texts),
            batch_size=BATCH_TEXTS,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return _unit(np.asarray(vectors, np.float32))


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rescale rows whose norm is off: weights in half precision normalise in half precision. Zero rows stay."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    off = (np.abs(norms - 1) > ROUNDING) & (norms > 0)
    return np.asarray(np.divide(vectors, norms, out=vectors.copy(), where=off), np.float32)
