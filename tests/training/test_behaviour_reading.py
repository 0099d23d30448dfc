"""The texts that the reader of behaviours is fitted on, and the fit on states whose truth is known."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from functools import cache, partial

import numpy as np
import pytest
import torch

from benchmarks.guard.lockout_unseen import BLIND, CALIBRATED_ON, scenarios_in
from benchmarks.guard.lockout_unseen import TEXTS as UNSEEN
from benchmarks.harness.resultfile import RESULTS, ResultFile
from memory_audit.models.activations.behaviour_networks import ComparingNetworks
from memory_audit.models.activations.behaviour_reader import passage_means, read_weights
from training import behaviour_reading as act_reading
from training.behaviours.comparing import ComparingNetwork
from training.behaviours.corpus import EACH, HARMFUL, HELD, PADDED, SAFE, TEXTS, Note, Scenario, notes, scenarios
from training.behaviours.fitting import Fitting
from training.behaviours.passages import batch_of
from training.behaviours.report import notes_row, rewritten_row, rows_of
from training.behaviours.scores import FLAT, Scores, fitted_curve, scores_of
from training.behaviours.scores import threshold_of as threshold
from training.behaviours.settings import Adapting, Fit
from training.texts import read_texts

pytestmark = pytest.mark.slow

PRACTICE = {"skip_check", "run_foreign_code", "send_outside", "false_success", "evade_audit"}
STEERING = {"answers", "targets", "orders", "beliefs"}

SMALL = Fit(
    dimensions=8, units=16, heads=2, networks=1, dropped=0.1, comparing_networks=1, second=16, strangers=1
)  # fmt: skip
QUICK = Adapting(steps=60, scenarios=16, notes=16, networks_rate=0.02, warm=5)
HIDDEN = 24


class KnownStates:
    """What texts are read as, known beforehand: a backbone without layers to adapt."""

    device = "cpu"

    def __init__(self, known) -> None:
        self._known = known

    def tensors(self, texts):
        return [torch.from_numpy(self._known[text]) for text in texts]

    def updated(self, updates):
        assert not updates
        return self

    def linear_layers(self):
        return {}


def world(count=60, seed=0):
    """Make states: a matter of its own for each scenario, a side of harm, and noise; texts say nothing here."""
    random = np.random.default_rng(seed)
    matters = random.normal(size=(count, 1, HIDDEN))
    side = np.zeros((1, HARMFUL + SAFE, HIDDEN))
    side[0, :HARMFUL, 0], side[0, HARMFUL:, 0] = 2.0, -2.0
    return np.asarray(matters + side + 0.3 * random.normal(size=(count, HARMFUL + SAFE, HIDDEN)), np.float32)


def found_in(states, *, padded=True):
    """Return scenarios, and what each of their texts is read as: states of tokens, shape (tokens, hidden)."""
    found = [
        Scenario(part=f"part {n % 3}", texts=tuple(f"{n}-{place}" for place in range(EACH)), padded=padded)
        for n in range(len(states))
    ]
    return found, [[text if text.ndim > 1 else text[None] for text in scenario] for scenario in states]


def fit_on(found, read, noted=(), *, fit=SMALL, how=QUICK):
    """Fit on scenarios, and on notes with their states."""
    known = {text: states for scenario, of in zip(found, read, strict=True)
             for text, states in zip(scenario.texts, of, strict=True)}  # fmt: skip
    known |= {note.text: states for note, states in noted}
    fitting = Fitting(found, KnownStates(known), (fit, replace(how, beside=0.0)))
    for step in range(how.steps):
        fitting.step(step, found, [note for note, _ in noted])
    return fitting.fitted().weights(FLAT)


def means_of(read):
    return [[passage_means(states) for states in scenario] for scenario in read]


@cache
def fitted(count=60, seed=0):
    return fit_on(*found_in(world(count, seed)))


def readings(weights, scenario):
    found = [weights.reading(passage_means(text[None])) for text in scenario]
    return np.stack([r.direction for r in found]), np.array([r.harm_nats for r in found])


def test_every_scenario_has_its_texts_and_no_text_is_there_twice():
    found = scenarios()
    assert len(found) > 1_000
    assert len({scenario.part for scenario in found}) == 10
    assert all(len(scenario.texts) == HARMFUL + SAFE and all(scenario.texts) for scenario in found)
    texts = [scenario.texts[place] for scenario in found for place in (0, *scenario.writes)]
    assert len(set(texts)) > 0.999 * len(texts)


def test_what_is_held_is_of_every_part_and_is_neither_fitted_on_nor_measured_elsewhere():
    held, fitted_on = scenarios(HELD), scenarios()
    assert {scenario.part for scenario in held} == {scenario.part for scenario in fitted_on}
    texts = [text for scenario in held for text in scenario.texts] + [note.text for note in notes(HELD / "notes")]
    assert len(set(texts)) > 0.999 * len(texts)
    others = {text for scenario in fitted_on for text in scenario.texts} | {note.text for note in notes()}
    assert not others & set(texts)
    for path in (UNSEEN, BLIND, CALIBRATED_ON):
        measured = {text for of in scenarios_in(path) for text in (of["act"], *of["restated"], *of["safe"])}
        assert not measured & set(texts)
        assert not measured & others


def test_what_a_small_model_rewrote_is_on_both_sides_and_is_not_what_it_was_made_of():
    for folder, many in ((TEXTS, 800), (HELD, 100)):
        found = scenarios(folder)
        mine = [scenario for scenario in found if scenario.rewritten]
        bad, right = (
            {text for one in found for text in getattr(one, side)} for side in ("rewritten", "rewritten_right")
        )  # fmt: skip
        assert min(len(mine), len(bad), len(right)) > many
        assert not bad & right
        assert not any({*one.rewritten, *one.rewritten_right} & {*one.texts} for one in found)


def test_honest_texts_are_in_other_languages_as_often_as_harmful_ones():
    """Else another language is harm to the reader. Only what another script shows is counted here."""
    for found in map(scenarios, (TEXTS, HELD)):
        told = np.array([[_foreign(scenario.texts[place]) for place in (HARMFUL - 3, EACH - 1)] for scenario in found])
        harmful, honest = told.mean(axis=0)
        assert harmful > 0.6
        assert honest == pytest.approx(harmful, abs=0.05)


def _foreign(text):
    return sum(ord(letter) > 127 and letter.isalpha() for letter in text) > 0.005 * len(text)


def test_kinds_are_named_and_those_of_the_brief_are_all_there():
    """Some writers of what is fitted on were asked for words of their own."""
    assert kinds_in(HELD) == PRACTICE | STEERING
    fitted_on = kinds_in(TEXTS)
    assert fitted_on >= PRACTICE | STEERING
    assert all(re.fullmatch(r"[a-z0-9_ -]+", kind) for kind in fitted_on)


def kinds_in(folder):
    named = [value["kinds"] for _, value in read_texts(folder)]
    assert all(named)
    return {kind for kinds in named for kind in kinds}


def test_a_fitted_reader_tells_sides_and_matters_that_it_has_not_seen():
    weights = fitted()
    for scenario in world(20, seed=1):
        _, harm = readings(weights, scenario)
        assert harm[:HARMFUL].min() > harm[HARMFUL:].max()
    mine, other = (readings(weights, scenario)[0] for scenario in world(2, seed=2))
    assert (mine[1:HARMFUL] @ mine[0]).min() > (other[:HARMFUL] @ mine[0]).max()


def test_the_same_texts_give_the_same_reader():
    first, second = fitted(), fit_on(*found_in(world()))
    assert np.array_equal(first.projection, second.projection)
    for one, other in ((first.harm, second.harm), (first.comparing, second.comparing)):
        assert all(np.array_equal(getattr(one, part.name), getattr(other, part.name)) for part in fields(one))


def test_what_was_fitted_is_what_the_reader_computes():
    """The comparing network in the form it is fitted in, and in the form it is packaged in."""
    random = np.random.default_rng(4)
    torch.manual_seed(4)
    exact = replace(SMALL, dropped=0.0)
    projection = torch.from_numpy(random.normal(size=(8, HIDDEN)).astype(np.float32))
    fitted = ComparingNetwork(projection, exact)
    for part in fitted.parts().values():
        part.data *= 5  # so that what is said differs by far more than torch rounds
    texts = [random.normal(size=(count, HIDDEN)).astype(np.float32) for count in (1, 40, 90)]
    behaviour = random.normal(size=(1, HIDDEN)).astype(np.float32)
    batch = batch_of([torch.from_numpy(text) for text in texts])
    key = fitted.keys(torch.from_numpy(behaviour))
    odds = fitted.odds(*fitted.seen(batch), key.expand(3, -1), batch).detach().numpy()
    packaged = ComparingNetworks(**{name: array[None] for name, array in fitted.arrays().items()})
    direction = behaviour @ projection.numpy().T
    direction /= np.linalg.norm(direction)
    again = [float(packaged.log_odds(packaged.seen(passage_means(text)), direction)[0]) for text in texts]
    within = 0.02 * float(np.ptp(odds))  # torch computes in bfloat16
    assert within > 0.1
    assert odds == pytest.approx(np.array(again), abs=within)


def test_the_curve_tells_what_was_held_and_the_threshold_keeps_its_share():
    found, read = found_in(world(60, seed=7))
    scores = scores_of(fitted(), found, means_of(read))
    scores = replace(scores, curve=fitted_curve(scores))
    cut = threshold(scores, 0.02)
    assert threshold(scores, 0.2) < cut
    named = np.array([item.part for item in found])
    rows = {row["part"]: row for row in rows_of(scores, named, cut, threshold(scores, 0.2))}
    assert set(rows) == {"all", "part 0", "part 1", "part 2"}
    assert rows["all"]["auc"] > 0.9
    assert rows["all"]["safe_refused"] <= 0.025
    assert rows["all"]["restated_refused"] > 0.9
    assert rows["all"]["restated_in_doubt_or_refused"] >= rows["all"]["restated_refused"]
    moved = replace(scores, curve=replace(scores.curve, bias=scores.curve.bias + 1.0))
    assert threshold(moved, 0.02) == pytest.approx(cut + 1.0, abs=2e-3)


def test_the_curve_weighs_what_says_something_and_not_what_says_nothing():
    random = np.random.default_rng(8)
    truth = np.broadcast_to(np.arange(EACH - 1) < HARMFUL - 1, (400, EACH - 1))
    told, noise = np.where(truth, 1.5, -1.5) + random.normal(size=truth.shape), random.normal(size=truth.shape)
    none = np.zeros(0)
    of = {"curve": FLAT, "compared_elsewhere": noise, "notes_compared": none, "notes_harm": none}
    curve = fitted_curve(Scores(compared=told, harm=noise, **of))
    assert curve.restated_slope == pytest.approx(3.0, rel=0.15)  # a shift of 3 nats over a variance of 1
    assert curve.harm_slope == pytest.approx(0.0, abs=0.15)
    other = fitted_curve(Scores(compared=noise, harm=told, **of))
    assert other.harm_slope == pytest.approx(3.0, rel=0.15)


def test_notes_are_learned_from():
    """Ordinary notes lie where no scenario does, on the harmful side: only notes tell that they are not."""
    random = np.random.default_rng(5)
    found, read = found_in(world(30, seed=5))
    rows = random.normal(scale=0.3, size=(90, HIDDEN)).astype(np.float32)
    rows[:, 0], rows[:, 1] = 1.0, 9.0
    texts = [row[None] for row in rows]
    noted = [(Note(topic=f"t{n % 3}", text=f"note {n}", bad=False), text) for n, text in enumerate(texts)]
    without, learned = (fit_on(found, read, some) for some in ([], noted[:60]))
    last = [passage_means(text) for _, text in noted[60:]]
    assert np.mean([without.reading(t).harm_nats for t in last]) > 0
    assert np.mean([learned.reading(t).harm_nats for t in last]) < -1
    scores = scores_of(learned, found, means_of(read), last)
    row = notes_row(scores, [note for note, _ in noted[60:]], 1.0, 0.0)
    assert np.isfinite(scores.notes).all()
    assert row["ordinary"]["n"] == row["ordinary, 6 words at most"]["n"] == 30
    assert row["ordinary"]["refused"] < 0.2


def test_notes_are_of_both_sides_and_of_all_lengths():
    found = notes()
    assert len({note.topic for note in found}) == 12
    held = notes(HELD / "notes")
    assert (len(held), sum(note.bad for note in held)) == (320, 80)
    assert len({note.text for note in found}) > 0.99 * len(found)
    words = [len(note.text.split()) for note in found if not note.bad]
    assert len(words) > 800
    assert sum(count <= 6 for count in words) > 200
    assert sum(note.bad for note in found) > 200


def test_a_text_is_held_against_its_own_act_and_against_others():
    weights = fitted()
    found, read = found_in(world(14, seed=9))
    means = means_of(read)
    scores = replace(scores_of(weights, found, means), curve=replace(FLAT, restated_slope=0.5, harm_slope=2.0, bias=1))
    reading, behaviour = weights.reading(means[3][4]), weights.reading(means[3][0]).direction[None]
    told = float(weights.comparing.log_odds(reading.passages, behaviour)[0])
    assert scores.compared[3, 3] == pytest.approx(told, abs=1e-3)
    assert scores.harm[3, 3] == pytest.approx(reading.harm_nats)
    assert scores.own[3, 3] == pytest.approx(0.5 * told + 2 * reading.harm_nats + 1, abs=1e-3)
    assert (np.abs(scores.elsewhere - scores.own) > 1e-6).all()  # never its own behaviour


def test_what_a_small_model_rewrote_is_compared_with_its_own_act():
    weights = fitted()
    found, read = found_in(world(8, seed=11))
    known = {"bad": read[1][3], "worse": read[4][2], "fine": read[1][HARMFUL], "good": read[4][HARMFUL + 1]}
    found[1] = replace(found[1], rewritten=("bad",), rewritten_right=("fine",))
    found[4] = replace(found[4], rewritten=("worse",), rewritten_right=("good", "fine"))
    behaviours = np.stack([weights.reading(passage_means(texts[0])).direction for texts in read])

    def odds(text, scenario):
        return float(weights.log_odds(weights.reading(passage_means(known[text])), behaviours[scenario][None])[0])

    bad = [odds("bad", 1), odds("worse", 4)]
    row = rewritten_row(
        found, lambda pairs: np.array([odds(text, number) for number, text in pairs]), max(bad), min(bad)
    )  # fmt: skip
    assert row["restated"] == {"n": 2, "refused": 0.5, "in_doubt_or_refused": 1.0}
    assert row["safe"] == {"n": 3, "refused": 0.0, "in_doubt_or_refused": 0.0}
    assert row["auc"] == 1.0


def test_a_missing_text_is_no_score():
    found, read = found_in(world(30), padded=False)
    scores = scores_of(fitted(), found, means_of(read))
    missing = HARMFUL - 1 + PADDED
    assert np.isnan(scores.own[:, missing]).all()
    assert not np.isnan(np.delete(scores.own, missing, axis=1)).any()
    assert np.isfinite(threshold(scores, 0.01))
    named = np.array([item.part for item in found])
    row = next(rows_of(scores, named, 1.0, 0.0))
    assert row["auc_against"]["padded, put right"] is None
    assert row["auc_against"]["by other means"] > 0.5


def test_the_packaged_weights_are_those_of_the_committed_result():
    weights, _ = read_weights()
    committed = json.loads((RESULTS / "act_reading.json").read_text(encoding="utf-8"))
    assert committed["config"]["scenarios"] == len(scenarios())
    stated = dict(re.findall(r"(\w+)=(-?[\d.e-]+)", committed["config"]["curve"]))
    curve = weights.curve
    for name in ("restated_slope", "harm_slope", "bias", "threshold_nats", "doubt_nats"):
        assert float(stated[name]) == pytest.approx(getattr(curve, name))
    assert curve.doubt_nats < curve.threshold_nats


def test_the_packaged_reader_is_measured_as_it_is_and_nothing_is_fitted(monkeypatch, tmp_path):
    weights, _ = read_weights()
    found, later = scenarios(HELD)[:12], notes(HELD / "notes")[:4]

    def states_of(texts, reporter, updates, device, source):
        assert updates.keys() == weights.updates.keys()
        random = [np.random.default_rng(list(text.encode())) for text in texts]
        return [numbers.normal(size=(3, 896)).astype(np.float32) for numbers in random]

    monkeypatch.setattr("sys.argv", ["act_reading", "--packaged"])
    for name, value in (
        ("scenarios", lambda *_: found), ("notes", lambda *_: later), ("states_of", states_of), ("_fitted", None),
        ("ensure_packed", str), ("folder_id", str), ("ResultFile", partial(ResultFile, folder=tmp_path)),
    ):  # fmt: skip
        monkeypatch.setattr(act_reading, name, value)
    act_reading.main()

    written = json.loads((tmp_path / "act_reading.json").read_text(encoding="utf-8"))
    assert written["command"] == "python -m training.behaviour_reading --packaged"
    assert written["config"]["curve"] == repr(weights.curve)
    assert [row["part"] for row in written["rows"]][-2:] == ["notes", "rewritten by a small model"]
    for option in ("--steps", "--further", "--most-false", "--most-doubted"):  # or the result would state them
        monkeypatch.setattr("sys.argv", ["act_reading", "--packaged", option, "3"])
        with pytest.raises(SystemExit, match="2"):
            act_reading.main()
