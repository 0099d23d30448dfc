"""How a cluster's GPUs are shared out: whichever model starts first, all start."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.jobs.executors.on_ray import GpuShares


def fits(shares: list[float], gpus: int) -> bool:
    """Tell whether actors get their parts in this order, as Ray gives them: the first GPU with room, wholes apart."""
    free = [1.0] * gpus
    for share in shares:
        place = next((number for number, room in enumerate(free) if room >= share - 1e-9), None)
        if place is None:
            return False
        free[place] -= share
    return True


@given(st.integers(1, 12), st.data())
def test_in_any_order_every_model_finds_its_part(gpus, data):
    shares = GpuShares.of(gpus, local_backbone=True)
    actors = [shares.small, shares.small, *[shares.backbone] * shares.replicas]
    assert fits(data.draw(st.permutations(actors)), gpus)
    assert shares.replicas >= 1


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_a_backbone_behind_a_url_takes_no_gpu(gpus):
    shares = GpuShares.of(gpus, local_backbone=False)
    assert (shares.backbone, shares.replicas) == (0.0, 1)
    assert shares.small == (0.5 if gpus else 0.0)


def test_without_gpus_nothing_asks_for_one():
    assert GpuShares.of(0, local_backbone=True) == GpuShares(backbone=0.0, replicas=1, small=0.0)
