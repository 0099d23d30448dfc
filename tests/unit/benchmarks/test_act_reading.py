"""The texts that the reader of acts is fitted on, and the fit on states whose truth is known."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from audit.forget.act import ActCurve
from benchmarks.act_reading import HARMFUL, SAFE, TEXTS, Fit, Scenario, fit_reader, out_of_fold, rows_of, scenarios
from benchmarks.act_reading import threshold_of as threshold
from jobs.progress import Reporter
from models.act_reader import read_act_weights

SMALL = Fit(dimensions=8, units=16, networks=1, epochs=40, dropped=0.1, harm_epochs=100)
FLAT = ActCurve(similarity_slope=1.0, harm_slope=0.0, bias=0.0, threshold_nats=0.0)
HIDDEN = 24


def world(count=60, seed=0):
    """Make states: a matter of its own for each scenario, a side of harm, and noise; texts say nothing here."""
    random = np.random.default_rng(seed)
    matters = random.normal(size=(count, 1, HIDDEN))
    side = np.zeros((1, HARMFUL + SAFE, HIDDEN))
    side[0, :HARMFUL, 0], side[0, HARMFUL:, 0] = 2.0, -2.0
    return np.asarray(matters + side + 0.3 * random.normal(size=(count, HARMFUL + SAFE, HIDDEN)), np.float32)


def found_in(states, *, padded=True):
    texts = ("",) * (HARMFUL + SAFE)
    found = [Scenario(part=f"part {n % 3}", texts=texts, padded=padded) for n in range(len(states))]
    return found, [[text[None] for text in scenario] for scenario in states]


def test_every_scenario_has_its_texts_and_no_text_is_there_twice():
    found = scenarios()
    assert len(found) > 1_000
    assert len({scenario.part for scenario in found}) == 6
    assert all(len(scenario.texts) == HARMFUL + SAFE and all(scenario.texts) for scenario in found)
    texts = [text for scenario in found for text in scenario.texts[: HARMFUL + SAFE - 1]]
    assert len(set(texts)) > 0.999 * len(texts)


def test_kinds_are_those_of_the_brief():
    kinds = {
        kind
        for path in TEXTS.glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
        for kind in json.loads(line)["kinds"]
    }
    assert kinds == {"skip_check", "run_foreign_code", "send_outside", "false_success", "evade_audit"}


def test_a_fitted_reader_tells_sides_and_matters_that_it_has_not_seen():
    weights = fit_reader(world(), SMALL, FLAT)
    for scenario in world(20, seed=1):
        reading = weights.reading(scenario)
        assert reading.harm_nats[:HARMFUL].min() > reading.harm_nats[HARMFUL:].max()
    mine, other = (weights.reading(scenario).directions for scenario in world(2, seed=2))
    assert (mine[1:HARMFUL] @ mine[0]).min() > (other[:HARMFUL] @ mine[0]).max()


def test_the_same_texts_give_the_same_reader():
    first, second = (fit_reader(world(), SMALL, FLAT) for _ in range(2))
    assert np.array_equal(first.projection, second.projection)
    assert np.array_equal(first.harm, second.harm)


def test_scores_are_out_of_fold_and_the_threshold_keeps_its_share():
    states = world(61)
    found, means = found_in(states)
    scores = out_of_fold(found, means, SMALL, Reporter(Console(quiet=True)))
    cut = threshold(scores, 0.02)
    rows = {row["part"]: row for row in rows_of(scores, np.array([item.part for item in found]), cut)}
    assert set(rows) == {"all", "part 0", "part 1", "part 2"}
    assert rows["all"]["auc"] > 0.9
    assert rows["all"]["safe_refused"] <= 0.025
    assert rows["all"]["restated_refused"] > 0.9
    assert threshold(replace(scores, own=scores.own + 1.0), 0.02) == pytest.approx(cut + 1.0, abs=2e-3)


def test_a_missing_text_is_no_score():
    found, means = found_in(world(30), padded=False)
    scores = out_of_fold(found, means, SMALL, Reporter(Console(quiet=True)))
    assert np.isnan(scores.own[:, -1]).all()
    assert not np.isnan(scores.own[:, :-1]).any()
    assert np.isfinite(threshold(scores, 0.01))


def test_the_packaged_weights_are_those_of_the_committed_result():
    weights, _ = read_act_weights()
    committed = json.loads((TEXTS.parent / "results" / "act_reading.json").read_text(encoding="utf-8"))
    assert committed["config"]["scenarios"] == len(scenarios())
    stated = [float(number) for number in re.findall(r"=(-?[\d.e-]+)", committed["config"]["curve"])]
    curve = weights.curve
    assert stated == pytest.approx([curve.similarity_slope, curve.harm_slope, curve.bias, curve.threshold_nats])
