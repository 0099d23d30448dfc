"""The training texts of the probe, and its fit."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gate.derivation.measures import auc
from memory_audit.guard.blocks.hazard import default_taxonomy
from training.hazard_probing import KINDS, fit_probe, training_texts
from training.label_calibration import calibration_texts

pytestmark = pytest.mark.slow

TAXONOMY = default_taxonomy()


def test_training_texts_are_labelled_by_their_kind_and_none_is_there_twice():
    texts = training_texts()
    assert len({item.text for item in texts}) == len(texts) > 3_000
    for item in texts:
        assert item.labels <= set(TAXONOMY.names), item
        assert bool(item.labels) == (item.kind == "hazard"), item
        assert item.kind in {"hazard", *KINDS}, item


def test_no_calibration_text_is_trained_on():
    assert {item.text for item in training_texts()}.isdisjoint(item.text for item in calibration_texts())


def test_a_direction_that_tells_a_label_is_found():
    generator = np.random.default_rng(0)
    truth = generator.random((300, 2)) < 0.4
    states = generator.normal(size=(300, 12)).astype(np.float32)
    states[:, 0] += 3 * truth[:, 0]
    weights, bias = fit_probe(states[:200], truth[:200])
    scores = states[200:] @ weights.T + bias
    assert weights.shape == (2, 12)
    assert auc(scores[:, 0], truth[200:, 0]) > 0.9
    assert 0.3 < auc(scores[:, 1], truth[200:, 1]) < 0.7
