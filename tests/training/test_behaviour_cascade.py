"""The joint curve of the two readers of behaviours: fitted on what is left open, and committed as it was fitted."""

import json
from dataclasses import asdict
from functools import cache, partial

import numpy as np
import pytest

from benchmarks.harness.resultfile import RESULTS, ResultFile
from memory_audit.models.activations.behaviour_cascade import CascadedBehaviourReader, cascade_calibration
from memory_audit.models.activations.behaviour_reader import FIRST, SECOND, read_weights
from tests.training.digests import packaged_or_alike
from training import behaviour_cascade as act_cascade
from training.behaviour_cascade import fitted, opened, scores_by
from training.behaviours.corpus import HARMFUL, HELD, notes, scenarios
from training.behaviours.kept_reader import KeptReader
from training.behaviours.report import odds_with_own_acts
from training.behaviours.scores import FLAT

pytestmark = pytest.mark.slow

FOUND, LATER = scenarios(HELD)[:10], notes(HELD / "notes")[:6]


@cache
def hidden_size(source):
    return read_weights(source)[0].projection.shape[1]


def states(texts, source):
    """Harmful texts lie apart from the others, by a little."""
    hidden = hidden_size(source)
    harmful = {text for scenario in FOUND for text in scenario.texts[:HARMFUL]}
    random = [np.random.default_rng(list(text.encode())) for text in texts]
    shift = np.random.default_rng(source.layer).normal(size=hidden)
    return [
        (numbers.normal(size=(3, hidden)) + (text in harmful) * 0.15 * shift).astype(np.float32)
        for text, numbers in zip(texts, random, strict=True)
    ]


@pytest.fixture(scope="module")
def readers():
    return tuple(KeptReader(*read_weights(one), partial(states, source=one)) for one in (FIRST, SECOND))


def test_the_packaged_constants_are_those_of_the_committed_result():
    config = json.loads((RESULTS / "act_cascade.json").read_text(encoding="utf-8"))["config"]
    joint, curve = cascade_calibration()
    assert json.loads(json.dumps(asdict(joint))) == config["joint"]
    assert (config["threshold_nats"], config["doubt_nats"]) == (curve.threshold_nats, curve.doubt_nats)
    assert (curve.restated_slope, curve.harm_slope, curve.bias) == (1.0, 0.0, 0.0)  # log-odds are the joint curve's
    assert [config["first"], config["second"]] in packaged_or_alike()


def test_both_readers_decide_what_the_first_leaves_open_and_nothing_else(readers):
    first, second = readers
    alone = scores_by(first, FOUND, LATER)
    middle = float(np.nanmedian(alone.own))
    left = alone.own >= middle
    joint = fitted(first, second, FOUND, left, middle)
    cascade = CascadedBehaviourReader(first, second, alone=first.curve, joint=joint, curve=FLAT)
    both = scores_by(cascade, FOUND, LATER)
    shut = (alone.own < middle) & np.isfinite(alone.own)
    assert both.own[shut] == pytest.approx(alone.own[shut], abs=1e-3)
    assert (np.abs(both.own - alone.own)[left] > 1e-3).mean() > 0.9
    number, place = np.argwhere(left)[0]
    said = np.array([*first.said(FOUND[number], place + 1), *second.said(FOUND[number], place + 1)])
    slopes = np.array([joint.restated_slopes, joint.harm_slopes]).T.ravel()
    assert both.own[number, place] == pytest.approx(said @ slopes + joint.bias, abs=1e-2)


def test_the_second_reader_is_given_acts_and_what_is_open(readers):
    alone = scores_by(readers[0], FOUND, LATER)
    behaviours = [scenario.texts[0] for scenario in FOUND]
    rewritten = {text for of in FOUND for text in (*of.rewritten, *of.rewritten_right)}
    assert set(opened(alone, FOUND, LATER, np.inf)) == {*behaviours, *rewritten}
    everything = opened(alone, FOUND, LATER, -np.inf)
    assert {note.text for note in LATER} < set(everything)
    assert {scenario.texts[place] for scenario in FOUND for place in scenario.writes} < set(everything)


def test_a_text_is_held_against_the_act_it_is_named_with(readers):
    first, _ = readers
    behaviours = [reading.direction for reading in first.taught([scenario.texts[0] for scenario in FOUND])]
    text = FOUND[2].texts[3]
    odds = odds_with_own_acts(first, FOUND, [(2, text), (7, text)])
    (reading,) = first.read([text])
    assert odds == pytest.approx([first.log_odds(reading, behaviours[number][None])[0] for number in (2, 7)])


def test_both_are_reported_beside_the_first_alone(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["act_cascade"])
    monkeypatch.setattr(act_cascade, "scenarios", lambda *_: FOUND)
    monkeypatch.setattr(act_cascade, "notes", lambda *_: LATER)
    monkeypatch.setattr(act_cascade, "states_of", lambda texts, source, **_: states(texts, source))
    monkeypatch.setattr(act_cascade, "ResultFile", partial(ResultFile, folder=tmp_path))
    act_cascade.main()
    written = json.loads((tmp_path / "act_cascade.json").read_text(encoding="utf-8"))
    twice, *rows = written["rows"]
    assert twice["safe"] == pytest.approx(0.25, abs=0.02)
    parts = [(row["readers"], row["part"]) for row in rows]
    assert len(parts) == len(set(parts))
    for readers in ("first", "both"):
        assert {(readers, "all"), (readers, "notes"), (readers, "rewritten by a small model")} <= set(parts)
    assert written["config"]["threshold_nats"] >= written["config"]["doubt_nats"]
