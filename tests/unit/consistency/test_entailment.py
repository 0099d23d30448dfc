"""Both directions are asked, and the larger contradiction counts."""

from __future__ import annotations

import numpy as np
import pytest

from memory_audit.consistency.entailment import plan_pairs, weights
from memory_audit.errors import ModelError


def test_every_pair_is_asked_in_both_directions():
    assert plan_pairs([("a", "b"), ("a", "c")]) == [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")]


def test_weight_is_the_larger_contradiction_of_the_two_directions():
    answers = np.array([[0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.2, 0.0, 0.8]], dtype=np.float32)
    assert weights(answers).tolist() == pytest.approx([0.7, 0.3])


def test_no_pairs_give_no_weights():
    assert plan_pairs([]) == []
    assert weights(np.zeros((0, 3), dtype=np.float32)).shape == (0,)


@pytest.mark.parametrize("shape", [(3, 3), (2, 2), (6,)])
def test_wrong_shape_is_refused(shape):
    with pytest.raises(ModelError, match="expected \\(2 x pairs, 3\\)"):
        weights(np.zeros(shape, dtype=np.float32))


@pytest.mark.parametrize("row", [(np.nan, 0.5, 0.5), (2.0, -1.0, 0.0), (0.1, 0.1, 0.1), (np.inf, 0.0, 0.0)])
def test_rows_that_are_no_distribution_are_refused(row):
    with pytest.raises(ModelError, match="NLI row 1 is"):
        weights(np.array([(0.2, 0.3, 0.5), row], dtype=np.float32))
