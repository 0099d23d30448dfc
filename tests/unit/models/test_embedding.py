"""The packaged embedder through sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory_audit.errors import ModelError
from memory_audit.models.embedding import SentenceEmbedder
from memory_audit.models.weights.packaged import ensure

if TYPE_CHECKING:
    from numpy.typing import NDArray

TEXTS = ["How do I reset my password?", "x", "I forgot my login secret. " * 30, "The weather in Oslo is cold."]


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    return SentenceEmbedder(ensure("minilm"))


@pytest.mark.weights
def test_vectors_have_unit_length_and_keep_the_order(embedder: SentenceEmbedder):
    together = embedder.embed(TEXTS)
    assert together.shape == (4, 384)
    assert together.dtype == np.float32
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    for text, vector in zip(TEXTS, together, strict=True):
        assert embedder.embed([text])[0] == pytest.approx(vector, abs=1e-4)


@pytest.mark.weights
def test_meaning_is_nearer_than_subject_matter_apart(embedder: SentenceEmbedder):
    vectors = embedder.embed(TEXTS)
    assert vectors[0] @ vectors[2] > vectors[0] @ vectors[3]


@pytest.mark.weights
def test_no_text_gives_no_row(embedder: SentenceEmbedder):
    assert embedder.embed([]).shape == (0, 384)


@pytest.mark.weights
def test_what_is_spelt_like_a_control_token_is_embedded_as_its_letters(embedder: SentenceEmbedder):
    marks = ("[PAD]", "[SEP]", "[CLS]", "[MASK]")
    spelt, letters = (
        [f"{TEXTS[0]} {mark} {mark} {mark} {mark}" for mark in of] for of in (marks, map(str.lower, marks))
    )
    assert (embedder.embed(spelt) == embedder.embed(letters)).all()  # the model knows no capitals
    assert embedder.embed([spelt[0]])[0] @ embedder.embed([TEXTS[0]])[0] < 0.8


class Halved:
    """Normalises as weights in half precision do, and gives nothing for an empty text."""

    def modules(self) -> list[object]:
        return []

    def encode(self, texts: list[str], **_options: object) -> NDArray[np.float32]:
        rows = np.asarray([[0.6, 0.7984] if text else [0.0, 0.0] for text in texts], np.float32)
        rows[-1] = (0.6, 0.8)
        return rows


def test_rows_of_a_model_in_half_precision_have_unit_norm_and_others_keep_every_bit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", lambda *_args, **_options: Halved())
    monkeypatch.setattr("memory_audit.models.embedding.folder_id", lambda _: "halved@0")
    rows = SentenceEmbedder(Path("halved")).embed(["a", "", "b"])
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 0, 1], abs=1e-6)
    assert rows[0] / rows[0, 0] == pytest.approx([1, 0.7984 / 0.6])
    assert rows[2].tobytes() == np.asarray([0.6, 0.8], np.float32).tobytes()


def test_damaged_weights_are_one_line_that_says_what_to_do(cache: Path):
    folder = cache / "models" / "broken"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(b"\x10\x00")
    with pytest.raises(ModelError, match=r"broken: cannot load the embedding model \(.*delete it and start again$"):
        SentenceEmbedder(folder)
