"""What a purge costs ordinary use: which probes are asked, and what is counted."""

from __future__ import annotations

import json

import pytest

from benchmarks.attribution.probes_kept import state
from benchmarks.harness.intervals import bootstrap, bootstrap_ratio
from benchmarks.harness.resultfile import ResultFile


def test_the_bar_is_of_all_stores_together_and_is_stated_once(tmp_path):
    results = ResultFile("probes_kept", "none", {}, folder=tmp_path)
    results.add_row({"rho": 0.2, "seed": 0, "right_before": 50, "right_after": 50})
    state(results)
    results.add_row({"rho": 0.2, "seed": 1, "right_before": 50, "right_after": 45})
    state(results)
    (bar,) = json.loads((tmp_path / "probes_kept.json").read_text(encoding="utf-8"))["bars"]
    assert (bar["value"], bar["met"]) == (95.0, False)


def test_a_ratio_of_sums_is_not_the_mean_of_ratios():
    low, high = bootstrap_ratio([(99, 100), (0, 1)])
    assert low == 0.0
    assert high == pytest.approx(0.99)
    assert bootstrap_ratio([(1, 2)] * 3) == (0.5, 0.5)
    assert bootstrap([0.25, 0.25]) == (0.25, 0.25)
    with pytest.raises(ValueError, match="nothing below"):
        bootstrap_ratio([(1, 0)])
