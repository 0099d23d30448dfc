"""Scenarios that the reader of acts was not fitted on, and how two readers are weighed on them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from audit.errors import UsageError
from benchmarks import act_held
from benchmarks.act_held import HELD, compared, drawn, held_scenarios, judged
from benchmarks.acts.corpus import EACH, RESTATED, notes, scenarios
from benchmarks.acts.scores import FLAT, Scores, scores_of
from benchmarks.lockout_unseen import BLIND, CALIBRATED_ON, TEXTS, scenarios_in
from benchmarks.resultfile import RESULTS
from models.act_reader import read_act_weights

TRUTH = np.broadcast_to(np.arange(EACH - 1) < RESTATED, (300, EACH - 1))


def noisy(rng, scale):
    """Make what a reader says: more of restatements, and noise."""
    return np.where(TRUTH, scale, -scale) + rng.normal(size=TRUTH.shape)


def read(own):
    return Scores(curve=FLAT, own=own, strangers=own, compared=own, harm=np.zeros(own.shape), notes=np.zeros(0))


def test_what_is_held_is_of_every_part_and_is_neither_fitted_on_nor_measured_elsewhere():
    held = scenarios(HELD)
    parts = {scenario.part for scenario in scenarios()}
    assert {scenario.part for scenario in held} == parts
    assert len(held_scenarios(3)) == 3 * len(parts)
    assert held_scenarios(None) != held_scenarios(3)
    texts = [text for scenario in held for text in scenario.texts]
    assert len(set(texts)) > 0.999 * len(texts)
    fitted = {text for scenario in scenarios() for text in scenario.texts} | {note.text for note in notes()}
    assert not fitted & set(texts)
    for path in (TEXTS, BLIND, CALIBRATED_ON):
        measured = {text for of in scenarios_in(path) for text in (of["act"], *of["restated"], *of["safe"])}
        assert not measured & set(texts)


def test_two_readers_that_err_apart_tell_more_together_and_one_that_knows_nothing_adds_nothing():
    rng = np.random.default_rng(0)
    first, closer = read(noisy(rng, 0.8)), read(noisy(rng, 0.8))
    rows = {row["weighed"]: row for row in compared(first, closer, rng.normal(size=TRUTH.shape))}
    assert rows["both"]["auc"] > max(rows["first look"]["auc"], rows["closer look"]["auc"]) + 0.05
    assert rows["both and key"]["auc"] == pytest.approx(rows["both"]["auc"], abs=0.01)
    for row in rows.values():
        shares = [row[f"restated_refused_at_{share}%_of_safe"] for share in (1, 3, 10)]
        assert shares == sorted(shares)
        assert row["n"] == TRUTH.size


def test_no_scenario_has_a_say_in_its_own_judgement():
    rng = np.random.default_rng(1)
    odds, restated = judged([rng.normal(size=(300, EACH - 1)) for _ in range(40)], TRUTH)
    assert abs((odds[restated] > np.median(odds)).mean() - 0.5) < 0.04


@pytest.mark.parametrize(("option", "value"), [("--each", "0"), ("--closer", "0"), ("--closer", "100000")])
def test_a_number_of_scenarios_that_there_are_not_is_told_before_anything_is_read(monkeypatch, option, value):
    monkeypatch.setattr(act_held, "read_act_weights", lambda: pytest.fail("it began"))
    monkeypatch.setattr("sys.argv", ["act_held", option, value])
    with pytest.raises(UsageError, match=f"{option} is {value}, expected"):
        act_held.main()


def test_a_missing_text_is_not_judged():
    own = noisy(np.random.default_rng(2), 1.0)
    own[:, 11] = np.nan
    odds, restated = judged([own, np.zeros(own.shape)], TRUTH)
    assert len(odds) == len(restated) == own.size - len(own)


def test_more_scenarios_begin_with_the_same_ones():
    found = scenarios(HELD)
    assert drawn(found, 9)[:5] == drawn(found, 5)


def test_a_text_is_held_against_its_own_act_and_against_others():
    weights, _ = read_act_weights()
    held = scenarios(HELD)[:14]
    rng = np.random.default_rng(3)
    states = rng.normal(size=(len(held), EACH, 2, weights.projection.shape[1])).astype(np.float32)
    found = scores_of(weights, held, states)
    reading, act = weights.reading(states[3, 4]), weights.reading(states[3, 0]).direction[None]
    told = weights.comparing.log_odds(reading.passages, act)
    assert found.compared[3, 3] == pytest.approx(float(told[0]), abs=1e-3)
    assert found.own[3, 3] == pytest.approx(float(weights.log_odds(reading, act)[0]), abs=1e-3)
    assert found.harm[3, 3] == pytest.approx(reading.harm_nats)
    assert (np.abs(found.strangers - found.own) > 1e-6).all()  # never its own act


def test_the_committed_result_is_of_the_packaged_reader_and_of_all_that_is_held():
    committed = json.loads((RESULTS / "act_held.json").read_text(encoding="utf-8"))
    assert committed["config"]["acts"] == read_act_weights()[1]
    assert committed["config"]["held"] == len(scenarios(HELD))
