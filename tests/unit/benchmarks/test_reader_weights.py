"""How decisions of two pairs of readers are held against one another."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.guard.reader_weights import compared, weights_at
from memory_audit.errors import UsageError
from memory_audit.models.activations.behaviour_reader import FIRST

THRESHOLDS = {"refused": 2.0, "near": 0.5, "doubt": -2.0, "open": -3.0}


def of(before, after):
    return compared(np.array(before), np.array(after), THRESHOLDS)


def test_texts_that_stay_on_their_side_of_each_threshold_are_decided_alike():
    found = of([3.0, 1.0, -1.0, -9.0], [2.5, 1.0, -1.0, -9.0])
    assert (found["writes"], found["decided_otherwise"]) == (4, 0)
    assert [found[f"{name}_before"] for name in THRESHOLDS] == [1, 2, 3, 3]
    assert (found["largest_change_nats"], found["rms_change_nats"]) == (0.5, 0.25)
    assert (found["refused_closest_nats"], found["doubt_closest_nats"]) == (1.0, 1.0)


def test_a_text_that_passes_a_threshold_only_once_is_counted_once_whichever_way_it_went():
    found = of([3.0, 1.0, -2.5, 9.0], [-2.5, 2.1, -1.9, 9.0])
    assert found["decided_otherwise"] == 3
    assert [found[f"{name}_otherwise"] for name in THRESHOLDS] == [2, 1, 2, 0]


def test_a_text_of_which_the_second_reader_is_asked_only_once_is_decided_alike_where_it_is_far_from_the_others():
    found = of([-2.9, 4.0], [-3.1, 4.0])
    assert (found["decided_otherwise"], found["open_otherwise"], found["largest_change_nats"]) == (0, 1, 0)


def test_a_revision_that_is_not_there_is_one_line():
    with pytest.raises(UsageError, match=r"^--before no-such: no models/data/act_reader\.npz there$"):
        weights_at("no-such", FIRST)
