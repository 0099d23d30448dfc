"""The derived-memory corpus says what its README says, and the measures agree with their definitions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gate.derivation.corpus import hard_pairs, load_corpus
from benchmarks.gate.derivation.measures import (
    auc,
    best_threshold,
    brier,
    calibration_error,
    cross_validated,
    fit,
    precision_recall,
    reliability,
)
from memory_audit.models.fakes import FakeEmbedder

WEIGHTS = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), st.booleans()), min_size=2, max_size=20)


def arrays(rows):
    return np.asarray([weight for weight, _ in rows]), np.asarray([edge for _, edge in rows])


def test_the_corpus_has_sixty_earlier_and_sixty_derived_memories_and_two_hard_negatives_a_topic():
    corpus = load_corpus()
    assert len(corpus.earlier) == 60
    assert Counter(memory.kind for memory in corpus.later) == {
        "summary": 24, "paraphrase": 24, "merge": 12, "independent": 24,
    }  # fmt: skip
    topics = {memory.memory_id: memory.topic for memory in corpus.earlier}
    assert len(topics) == 60
    assert len({memory.text for memory in (*corpus.earlier, *corpus.later)}) == 144
    for memory in corpus.later:
        assert all(topics[parent] == memory.topic for parent in memory.parents)
        assert bool(memory.parents) == (memory.kind != "independent")


def test_pairs_are_all_of_one_topic_and_the_nearest_of_others():
    corpus = load_corpus()
    vectors = [FakeEmbedder().embed([memory.text for memory in part]) for part in (corpus.earlier, corpus.later)]
    pairs = hard_pairs(corpus, *vectors, foreign=3)
    assert len(pairs) == 84 * 8
    assert sum(pair.edge for pair in pairs) == 108
    assert sum(pair.earlier.topic == pair.later.topic for pair in pairs) == 84 * 5
    assert len({(pair.earlier.memory_id, pair.later.memory_id) for pair in pairs}) == len(pairs)


@given(WEIGHTS)
def test_the_best_threshold_has_the_best_f1_of_all(rows):
    weights, edges = arrays(rows)
    if not edges.any():
        return

    def f1(threshold):
        precision, recall = precision_recall(weights >= threshold, edges)
        return 0.0 if precision + recall == 0 else 2 * precision * recall / (precision + recall)

    best = f1(best_threshold(weights, edges))
    assert best == pytest.approx(max(f1(threshold) for threshold in {*weights.tolist(), 0.0}))


@given(WEIGHTS)
def test_reliability_bins_hold_every_pair_once_and_the_error_is_their_weighted_gap(rows):
    weights, edges = arrays(rows)
    bins = reliability(weights, edges)
    assert sum(row["pairs"] for row in bins) == len(rows)
    gap = sum(row["pairs"] * abs(row["mean_weight"] - row["edges"]) for row in bins) / len(rows)
    assert calibration_error(weights, edges) == pytest.approx(gap, abs=1e-3)
    assert 0 <= brier(weights, edges) <= 1


@given(WEIGHTS)
def test_auc_is_the_share_of_pairs_in_the_right_order(rows):
    weights, edges = arrays(rows)
    if edges.all() or not edges.any():
        return
    right = [(p > n) + 0.5 * (p == n) for p in weights[edges] for n in weights[~edges]]
    assert auc(weights, edges) == pytest.approx(sum(right) / len(right))


def test_a_curve_recovers_the_probabilities_that_made_the_data_and_out_of_fold_weights_are_calibrated():
    rng = np.random.default_rng(0)
    scores = rng.uniform(-3, 3, (4_000, 1))
    truth = 1 / (1 + np.exp(-(0.5 + 1.5 * scores[:, 0])))
    edges = rng.uniform(size=4_000) < truth
    fitted = fit(scores, edges)
    assert np.abs(fitted.weights(scores) - truth).max() < 0.05
    weights, decisions = cross_validated(scores, edges, [f"g{number % 5}" for number in range(4_000)])
    assert calibration_error(weights, edges) < 0.03
    assert (decisions == (weights >= 0.4)).mean() > 0.8


def test_no_group_is_judged_by_a_curve_that_saw_it():
    scores = np.asarray([[0.0], [1.0], [0.0], [1.0]])
    edges = np.asarray([False, True, True, False])
    weights, _ = cross_validated(scores, edges, ["a", "a", "b", "b"])
    assert weights[0] > 0.5 > weights[1]  # group b says the opposite of group a
    assert weights[2] < 0.5 < weights[3]
