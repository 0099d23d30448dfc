"""The texts that the reader of acts is fitted on, and the fit on states whose truth is known."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from audit.forget.act import ActCurve
from benchmarks.act_reading import (
    HARMFUL,
    PADDED,
    SAFE,
    TEXTS,
    Fit,
    Note,
    Scenario,
    TextStates,
    fit_reader,
    notes,
    notes_row,
    out_of_fold,
    rows_of,
    scenarios,
)  # fmt: skip
from benchmarks.act_reading import threshold_of as threshold
from jobs.progress import Reporter
from models.act_reader import read_act_weights

SMALL = Fit(dimensions=8, units=16, heads=2, networks=1, epochs=20, dropped=0.1, harm_epochs=12, harm_rate=0.02)
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
    return found, [[TextStates(text[None], text[None]) for text in scenario] for scenario in states]


def fitted(count=60, seed=0):
    return fit_reader(*found_in(world(count, seed)), [], SMALL, FLAT)


def readings(weights, scenario):
    found = [weights.reading_of(text[None], text[None]) for text in scenario]
    return np.concatenate([r.directions for r in found]), np.concatenate([r.harm_nats for r in found])


def test_every_scenario_has_its_texts_and_no_text_is_there_twice():
    found = scenarios()
    assert len(found) > 1_000
    assert len({scenario.part for scenario in found}) == 6
    assert all(len(scenario.texts) == HARMFUL + SAFE and all(scenario.texts) for scenario in found)
    texts = [scenario.texts[place] for scenario in found for place in (0, *scenario.writes)]
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
    weights = fitted()
    for scenario in world(20, seed=1):
        _, harm = readings(weights, scenario)
        assert harm[:HARMFUL].min() > harm[HARMFUL:].max()
    mine, other = (readings(weights, scenario)[0] for scenario in world(2, seed=2))
    assert (mine[1:HARMFUL] @ mine[0]).min() > (other[:HARMFUL] @ mine[0]).max()


def test_the_same_texts_give_the_same_reader():
    first, second = fitted(), fitted()
    assert np.array_equal(first.projection, second.projection)
    assert np.array_equal(first.networks.units, second.networks.units)


def test_one_harmful_passage_among_many_is_found():
    """Mean states of the whole say nothing here: one passage of six is harmful."""
    random = np.random.default_rng(3)
    states = world(80, seed=3)
    found, _ = found_in(states)
    routine = random.normal(scale=0.3, size=(*states.shape[:2], 5, HIDDEN)).astype(np.float32)
    passages = np.concatenate([states[:, :, None], routine], axis=2)
    means = [[TextStates(text[:1], text[random.permutation(6)]) for text in scenario] for scenario in passages]
    weights = fit_reader(found[:60], means[:60], [], replace(SMALL, epochs=1, harm_epochs=20), FLAT)
    for scenario in means[60:]:
        harm = [weights.reading_of(text.windows, text.passages).harm_nats[0] for text in scenario]
        assert np.mean(harm[:HARMFUL]) > np.mean(harm[HARMFUL:]) + 1


def test_scores_are_out_of_fold_and_the_threshold_keeps_its_share():
    states = world(61)
    found, means = found_in(states)
    scores = out_of_fold(found, means, [], SMALL, Reporter(Console(quiet=True)))
    cut = threshold(scores, 0.02)
    assert threshold(scores, 0.2) < cut
    named = np.array([item.part for item in found])
    rows = {row["part"]: row for row in rows_of(scores, named, cut, threshold(scores, 0.2))}
    assert set(rows) == {"all", "part 0", "part 1", "part 2"}
    assert rows["all"]["auc"] > 0.9
    assert rows["all"]["safe_refused"] <= 0.025
    assert rows["all"]["restated_refused"] > 0.9
    assert rows["all"]["restated_in_doubt_or_refused"] >= rows["all"]["restated_refused"]
    assert threshold(replace(scores, own=scores.own + 1.0), 0.02) == pytest.approx(cut + 1.0, abs=2e-3)


def test_notes_are_learned_from_and_held_out_by_topic():
    """Ordinary notes lie where no scenario does, on the harmful side: only notes tell that they are not."""
    random = np.random.default_rng(5)
    found, means = found_in(world(30, seed=5))
    rows = random.normal(scale=0.3, size=(90, HIDDEN)).astype(np.float32)
    rows[:, 0], rows[:, 1] = 1.0, 9.0
    texts = [TextStates(row[None], row[None]) for row in rows]
    noted = [(Note(topic=f"t{n % 3}", text="one two", bad=False), text) for n, text in enumerate(texts)]
    without, learned = (fit_reader(found, means, some, SMALL, FLAT) for some in ([], noted[:60]))
    last = [text for _, text in noted[60:]]
    assert np.mean([without.reading_of(t.windows, t.passages).harm_nats[0] for t in last]) > 0
    assert np.mean([learned.reading_of(t.windows, t.passages).harm_nats[0] for t in last]) < -1
    scores = out_of_fold(found, means, noted, SMALL, Reporter(Console(quiet=True)))
    row = notes_row(scores, [note for note, _ in noted], 1.0, 0.0)
    assert np.isfinite(scores.notes).all()
    assert row["ordinary"]["n"] == row["ordinary, 6 words at most"]["n"] == 90
    assert row["ordinary"]["refused"] < 0.2


def test_notes_are_of_both_sides_and_of_all_lengths():
    found = notes()
    assert len({note.topic for note in found}) == 6
    assert len({note.text for note in found}) > 0.99 * len(found)
    words = [len(note.text.split()) for note in found if not note.bad]
    assert len(words) > 800
    assert sum(count <= 6 for count in words) > 200
    assert sum(note.bad for note in found) > 200


def test_a_missing_text_is_no_score():
    found, means = found_in(world(30), padded=False)
    scores = out_of_fold(found, means, [], SMALL, Reporter(Console(quiet=True)))
    missing = HARMFUL - 1 + PADDED
    assert np.isnan(scores.own[:, missing]).all()
    assert not np.isnan(np.delete(scores.own, missing, axis=1)).any()
    assert np.isfinite(threshold(scores, 0.01))


def test_the_packaged_weights_are_those_of_the_committed_result():
    weights, _ = read_act_weights()
    committed = json.loads((TEXTS.parent / "results" / "act_reading.json").read_text(encoding="utf-8"))
    assert committed["config"]["scenarios"] == len(scenarios())
    stated = [float(number) for number in re.findall(r"=(-?[\d.e-]+)", committed["config"]["curve"])]
    curve = weights.curve
    mine = [curve.similarity_slope, curve.harm_slope, curve.bias, curve.threshold_nats, curve.doubt_nats]
    assert stated == pytest.approx(mine)
    assert curve.doubt_nats < curve.threshold_nats
