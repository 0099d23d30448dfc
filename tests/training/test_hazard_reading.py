"""The fit behind the packaged curves."""

import numpy as np
import pytest

from benchmarks.gate.derivation.measures import auc
from memory_audit.guard.blocks.hazard import default_taxonomy
from training.hazard_reading import STATEMENTS, fit_curve, out_of_fold

pytestmark = pytest.mark.slow


def made(seed: int = 0):
    rng = np.random.default_rng(seed)
    truth = rng.random(160) < 0.3
    return np.c_[truth + 0.3 * rng.normal(size=160), -1.0 * truth + rng.normal(size=160)], truth


def test_slopes_are_never_negative():
    columns, truth = made()
    weights = fit_curve(columns, truth)
    assert (weights[:-1] >= 0).all()
    assert weights[0] > 0
    assert weights[1] == pytest.approx(0.0, abs=1e-6)


def test_scores_out_of_fold_order_what_can_be_ordered_and_nothing_else():
    columns, truth = made()
    assert auc(out_of_fold(columns, truth), truth) > 0.95
    shuffled = np.random.default_rng(1).permutation(truth)
    assert auc(out_of_fold(columns, shuffled), shuffled) < 0.7


def test_auc_counts_ties_half():
    assert auc(np.array([1.0, 1.0, 0.0, 2.0]), np.array([True, False, False, True])) == 0.875


def test_every_label_has_statements():
    assert tuple(STATEMENTS) == default_taxonomy().names
