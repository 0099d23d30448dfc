"""The packaged embedder through sentence-transformers."""

from __future__ import annotations

import numpy as np
import pytest

from models.embedding import SentenceEmbedder
from models.packaged import ensure

TEXTS = ["How do I reset my password?", "x", "I forgot my login secret. " * 30, "The weather in Oslo is cold."]


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    return SentenceEmbedder(ensure("minilm"))


def test_vectors_have_unit_length_and_keep_the_order(embedder: SentenceEmbedder):
    together = embedder.embed(TEXTS)
    assert together.shape == (4, 384)
    assert together.dtype == np.float32
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    for text, vector in zip(TEXTS, together, strict=True):
        assert embedder.embed([text])[0] == pytest.approx(vector, abs=1e-4)


def test_meaning_is_nearer_than_subject_matter_apart(embedder: SentenceEmbedder):
    vectors = embedder.embed(TEXTS)
    assert vectors[0] @ vectors[2] > vectors[0] @ vectors[3]


def test_no_text_gives_no_row(embedder: SentenceEmbedder):
    assert embedder.embed([]).shape == (0, 384)
