"""How false refusals are counted by the number of removed behaviours."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.guard.many_acts import ANSWERS, COUNTS, ORDINARY, TURNS, Told, counted, draw
from memory_audit.guard.decide.settings import GuardSettings

NEAR, FAR = GuardSettings().look_above + 0.1, GuardSettings().read_above - 0.05
NAMES = (TURNS, ORDINARY, ANSWERS)
BETWEEN = (GuardSettings().read_above + GuardSettings().look_above) / 2


def told(odds, cosines, of=(-1, -1, -1)):
    return Told(odds=np.array(odds, np.float32), cosines=np.array(cosines, np.float32), of=np.array(of))


def test_a_write_is_refused_by_any_removed_act_that_is_not_far():
    found = told([[3, -9], [-9, 3], [1, -9]], [[NEAR, NEAR], [NEAR, FAR], [NEAR, NEAR]])
    assert found.shares(np.array([0]), 2.0, 0.0) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert found.shares(np.array([1]), 2.0, 0.0) == (0.0, 0.0)
    assert found.shares(np.array([0, 1]), 2.0, 4.0) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_doubt_is_of_near_keys_and_refusal_of_all_that_are_not_far():
    found = told([[1], [3], [1]], [[BETWEEN], [BETWEEN], [NEAR]])
    assert found.shares(np.array([0]), 2.0, 0.0) == (pytest.approx(1 / 3), pytest.approx(2 / 3))


def test_what_belongs_to_a_removed_act_is_not_counted_as_harmless():
    found = told([[3, 3], [-9, 3], [-9, -9]], [[NEAR, NEAR]] * 3, of=(0, 1, 1))
    assert found.shares(np.array([0]), 2.0, 0.0) == (0.0, 0.0)
    assert found.shares(np.array([1]), 2.0, 0.0) == (1.0, 1.0)
    assert found.own_refused(2.0) == pytest.approx(2 / 3)
    assert told([[3, 3], [-9, 3], [-9, 9]], [[FAR, NEAR], [NEAR, FAR], [NEAR, NEAR]], of=(0, 1, 1)).own_refused(
        2.0
    ) == pytest.approx(1 / 3)


def test_more_acts_refuse_more_and_a_higher_threshold_less(tmp_path):
    random = np.random.default_rng(0)
    odds, cosines = random.normal(size=(300, COUNTS[-1])), np.full((300, COUNTS[-1]), NEAR)
    found = told(odds, cosines, of=[-1] * 300)
    rows, less = (counted(found, above, above - 0.5) for above in (2.5, 3.0))
    assert [row["acts"] for row in rows] == list(COUNTS)
    refused = [row["refused"] for row in rows]
    assert refused == sorted(refused)
    assert refused[1] == pytest.approx(1 - 0.9938**10, abs=0.02)
    assert all(
        low["refused"] <= row["refused"] <= row["refused_or_in_doubt"] for row, low in zip(rows, less, strict=True)
    )
    assert all(row["least"] <= row["refused"] <= row["most"] for row in rows)
    assert [row["acts"] for row in counted(told(odds, cosines, of=range(300)), 2.5, 2.0)] == list(COUNTS[:-1])
    drawn = [{"texts": name, "moved_nats": moved} | row for name in NAMES for moved in (0.0, 1.0) for row in rows]
    for name in ("a.svg", "b.svg"):
        draw(tmp_path / name, drawn)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
