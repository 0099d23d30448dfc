"""Which model is hosted where: whichever starts first, all start, and what comes and goes moves as little as it can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.models.services.places import SMALL_OF, GpuShares, Place, places

CLUSTERS = st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(1, 8), min_size=1)
"""Node to its GPUs."""


def nodes(gpus: dict[str, int]) -> dict[str, dict[str, float]]:
    return {node: {"GPU": count, "CPU": 8, "memory": 1e9} for node, count in gpus.items()}


def fits(shares: list[float], gpus: int) -> bool:
    """Tell whether actors get their parts in this order, as Ray gives them: the first GPU with room, wholes apart."""
    free = [1.0] * gpus
    for share in shares:
        place = next((number for number, room in enumerate(free) if room >= share - 1e-9), None)
        if place is None:
            return False
        free[place] -= share
    return True


@given(CLUSTERS, CLUSTERS, st.data())
def test_on_every_node_in_any_order_every_replica_finds_its_part_also_after_the_cluster_changed(
    first: dict[str, int], then: dict[str, int], data: st.DataObject
):
    shares = GpuShares.of(sum(first.values()), local_backbone=True)
    kept: list[Place] = []
    for gpus in (first, then):
        found = places(nodes(gpus), shares, kept=kept)
        assert found["nli"] == found["embedder"]
        for node, count in gpus.items():
            wanted = [
                share
                for role, share in (("backbone", shares.backbone), ("nli", shares.small), ("embedder", shares.small))
                for place in found[role]  # type: ignore[index]
                if place.node == node
            ]
            assert fits(data.draw(st.permutations(wanted)), count)
        number = sum(gpus.values())
        assert len(found["nli"]) == 1 + (number - 1) // SMALL_OF
        assert len(found["backbone"]) == (number if shares.backbone < 1 else number - len(found["nli"]))
        stayed = [place for place in kept if place.node in gpus and place.number < gpus[place.node]]
        assert found["nli"][: len(stayed)] == stayed[: len(found["nli"])]
        kept = found["nli"]


@given(CLUSTERS, st.sampled_from("abcdefghijkl"))
def test_a_node_that_comes_moves_no_small_model_and_a_backbone_at_most_where_one_more_small_model_is_due(
    gpus: dict[str, int], new: str
):
    shares = GpuShares.of(9, local_backbone=True)
    before = places(nodes(gpus), shares)
    after = places(nodes({new: 4} | gpus), shares, kept=before["nli"])
    more = len(after["nli"]) - len(before["nli"])
    assert after["nli"][: len(before["nli"])] == before["nli"]
    assert len(set(before["backbone"]) - set(after["backbone"])) <= more


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_a_backbone_behind_a_url_takes_no_gpu_and_small_models_take_all(gpus: int):
    shares = GpuShares.of(gpus, local_backbone=False)
    assert shares.backbone == 0.0
    assert shares.small == (0.5 if gpus else 0.0)
    found = places({"a": {"GPU": gpus, "CPU": 8}}, shares)
    assert len(found["nli"]) == max(1, gpus)


def test_without_gpus_every_node_that_computes_has_each_model_once():
    shares = GpuShares.of(0, local_backbone=True)
    assert shares == GpuShares(backbone=0.0, small=0.0)
    cluster = {"head": {"CPU": 0.0}, "b": {"CPU": 4.0}, "a": {"CPU": 2.0}}
    found = places(cluster, shares)
    assert list(found.values()) == [[Place("a", 0), Place("b", 0)]] * 3
    assert places({"head": {}}, shares)["nli"] == [Place("head", 0)]
    dealt = [Place("a", 0), Place("b", 0), Place("a", 1)]
    assert places(cluster, shares, replicas=3)["backbone"] == dealt
    assert places({}, shares)["backbone"] == places({}, shares, replicas=2)["backbone"] == []
