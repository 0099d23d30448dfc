"""How act and hazard are weighed together: the fit, and that the packaged reader has what was fitted for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.acts.corpus import notes
from benchmarks.acts.corpus import scenarios as texts_of_the_reader
from benchmarks.doubt_calibration import hazard_slope, threshold_of
from benchmarks.lockout_unseen import BLIND, CALIBRATED_ON, TEXTS, WAYS, scenarios_in
from benchmarks.resultfile import RESULTS
from models.act_reader import FUSED_NATS, HAZARD_SLOPE, read_act_weights

if TYPE_CHECKING:
    from pathlib import Path


def test_the_packaged_constants_are_those_that_were_fitted_for_this_reader():
    found = json.loads((RESULTS / "doubt_calibration.json").read_text(encoding="utf-8"))
    (row,) = found["rows"]
    assert (row["hazard_slope"], row["fused_nats"]) == (HAZARD_SLOPE, FUSED_NATS)
    assert found["config"]["acts"].endswith(read_act_weights()[1])


def texts_in(path: Path) -> set[str]:
    return {text for of in scenarios_in(path) for text in (of["request"], of["act"], *of["restated"], *of["safe"])}


@pytest.mark.parametrize("path", [TEXTS, BLIND])
def test_what_is_measured_is_not_what_was_fitted_on(path):
    fitted = texts_in(CALIBRATED_ON) | {note.text for note in notes()}
    fitted |= {text for scenario in texts_of_the_reader() for text in scenario.texts}
    assert not fitted & texts_in(path)


@pytest.mark.parametrize("path", [TEXTS, BLIND, CALIBRATED_ON])
def test_scenarios_are_whole_and_all_their_texts_differ(path):
    found = scenarios_in(path)
    assert len({of["id"] for of in found}) == len(found)
    for of in found:
        assert set(of) == {"id", "kind", "request", "act", "restated", "safe"}
        assert of["kind"] in {"practice", "steering"}
        assert (len(of["restated"]), len(of["safe"])) == tuple(map(len, WAYS.values()))
    assert len(texts_in(path)) == 12 * len(found)


def test_a_hazard_counts_for_what_it_tells():
    rng = np.random.default_rng(0)
    restated = rng.random(4_000) < 0.5
    odds = rng.normal(size=4_000) + 2.0 * restated
    hazards = rng.normal(size=4_000) + 1.0 * restated
    assert 0.4 < hazard_slope(odds, hazards, restated) < 0.6


HUNDREDTHS = st.integers(-900, 900).map(lambda number: number / 100)


@given(st.lists(st.floats(-9, 9) | HUNDREDTHS, min_size=1, max_size=30), st.integers(0, 5))
def test_the_threshold_lets_so_many_honest_notes_be_refused_and_no_more(honest, most):
    scores = np.array(honest)
    threshold = threshold_of(scores, most)
    if np.isinf(threshold):
        assert len(honest) <= most
    else:
        assert (scores >= threshold).sum() <= most
        assert (scores >= threshold - 0.011).sum() > most
