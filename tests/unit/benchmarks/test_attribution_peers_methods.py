"""Behaviour of the methods compared: who sees what, where poison is alone and where it is redundant."""

from __future__ import annotations

import pytest

from benchmarks.attribution.peers.methods import (
    half_ablations,
    lasso,
    leave_one_out,
    resemblance,
    set_attribution,
)
from benchmarks.attribution.peers.verdicts import hit_at_1
from tests.unit.benchmarks.attribution_world import CONFIG, make_world


@pytest.fixture
def world_of(tmp_path):
    """Make worlds that are closed afterwards."""
    worlds = []

    def make(poison, k=4, threshold=1):
        worlds.append(make_world(tmp_path, poison, k=k, threshold=threshold))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def test_leave_one_out_finds_a_lone_poison_and_nothing_else(world_of):
    world = world_of([2])
    found = leave_one_out(world.trial)
    assert found.scores["e1"] == {"m0000": 0.0, "m0001": 0.0, "m0002": 1.0, "m0003": 0.0}
    assert found.chosen == world.ids(2)


def test_leave_one_out_is_blind_where_poison_is_redundant(world_of):
    world = world_of([1, 2])
    found = leave_one_out(world.trial)
    assert set(found.scores["e1"].values()) == {0.0}
    assert found.chosen == frozenset()


def test_leave_one_out_pulls_in_the_next_memory(world_of):
    world = world_of([0, 4])  # k is 4: without m0000 the poisoned m0004 moves up
    assert leave_one_out(world.trial).scores["e1"]["m0000"] == 0.0


@pytest.mark.parametrize("method", ["set", "halves"])
def test_graded_methods_rank_redundant_poison_above_the_rest(world_of, method):
    world = world_of([1, 2])
    found = set_attribution(world.trial, {}) if method == "set" else half_ablations(world.trial)
    scores = found.scores["e1"]
    assert min(scores["m0001"], scores["m0002"]) > max(scores["m0000"], scores["m0003"])
    assert hit_at_1(scores, world.ids(1, 2)) == 1.0


def test_ours_removes_poison_that_no_event_had_retrieved(world_of):
    world = world_of([0, 4, 5])
    found = set_attribution(world.trial, {})
    assert found.chosen == world.ids(0, 4, 5)
    assert set(found.scores["e1"]) == world.ids(0, 1, 2, 3)


def test_ours_counts_the_replays_that_ranking_needs_apart_from_those_that_grow_the_set(world_of):
    found = set_attribution(world_of([0, 4]).trial, {})
    phases = found.more["replays_by_phase"]
    assert phases["gate"] == 2
    assert 0 < found.more["replays_to_rank"] < sum(phases.values())


def test_half_ablations_ask_each_half_once(world_of):
    world = world_of([1], k=2)
    world.backbone.begin(fresh=True)
    half_ablations(world.trial, draws=64)
    cost = world.backbone.end()
    assert cost.calls == 1 + 4  # the answer without memory, and the four subsets of two memories


def test_half_ablations_give_zeros_where_the_answer_does_not_depart(world_of):
    world = world_of([0], threshold=0)  # harm also without memory
    assert set(half_ablations(world.trial).scores["e1"].values()) == {0.0}


def test_lasso_recovers_a_sparse_sum():
    masks = [(bool(n & 1), bool(n & 2), bool(n & 4)) for n in range(8)]
    weights = lasso(masks, [3.0 * mask[1] - 1.0 for mask in masks], 3)
    assert weights[1] == pytest.approx(3.0, abs=0.1)
    assert weights[[0, 2]] == pytest.approx([0.0, 0.0], abs=1e-9)


def test_lasso_without_observations_knows_nothing():
    assert lasso([], [], 3).tolist() == [0.0, 0.0, 0.0]


def test_resemblance_ties_entries_with_alike_answers_and_never_to_themselves(world_of):
    world = world_of([1, 2])
    tied = resemblance(world.trial.memory.entries, CONFIG, world.trial.executor)
    assert tied["m0001"][0] == "m0002"
    assert all(name not in others for name, others in tied.items())
