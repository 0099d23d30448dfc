"""Candidates by products in float32, on a CPU in the place of a GPU: who is nearest is as by the exact search."""

from __future__ import annotations

import numpy as np
import pytest

from memory_audit.consistency.neighbours import nearest
from memory_audit.models import gpu_neighbours
from memory_audit.models.gpu_neighbours import GpuCandidates

pytest.importorskip("torch")


def unit_rows(count: int) -> np.ndarray:
    rows = np.random.default_rng(count).normal(size=(count, 16))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("count", [2, 11, 300])
def test_neighbours_are_those_of_the_exact_search(count, monkeypatch):
    monkeypatch.setattr(gpu_neighbours, "SCANNED_FLOATS", 7 * count)
    vectors = unit_rows(count)
    found, exact = nearest(vectors, 10, propose=GpuCandidates("cpu", fewest=2)), nearest(vectors, 10, method="exact")
    for name in ("pairs", "similarity", "lists", "list_pairs"):
        np.testing.assert_array_equal(getattr(found, name), getattr(exact, name))


def test_few_and_very_many_are_left_to_others(monkeypatch):
    monkeypatch.setattr(gpu_neighbours, "MOST_VECTORS", 5)
    assert GpuCandidates("cpu")(unit_rows(3), 2) is None
    assert GpuCandidates("cpu", fewest=1)(unit_rows(6), 2) is None
