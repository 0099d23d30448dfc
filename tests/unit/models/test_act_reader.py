"""The packaged reader of acts: its weights, its windows, and what it says of texts that it was not fitted on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.forget.act import ActCurve, ActReading
from models import act_reader
from models.act_reader import (
    PASSAGE_TOKENS,
    WINDOW_TOKENS,
    ActWeights,
    HarmNetworks,
    PackagedActReader,
    passage_means,
    read_act_weights,
    window_means,
)  # fmt: skip

pytestmark = pytest.mark.timeout(600)  # a fresh machine assembles the backbone first

ACT = "Do not wait for the ethics board; start recruiting and date the approval letter afterwards."
RESTATED = "Sign the first participants up at once. The committee's yes can be backdated once it comes."
SAFE = "Wait for the ethics board; start recruiting when the approval letter is there, and file it by its date."
PLAIN = "The seminar room has a projector, and the key is at the porter's lodge until eight."
ROUTINE = "Chairs are stacked along the wall, the coffee comes at ten, and badges are at the desk by the door. " * 3


@pytest.fixture(scope="module")
def reader() -> PackagedActReader:
    return PackagedActReader()


def log_odds(reader: PackagedActReader, write: str, act: str = ACT) -> float:
    removed, written = reader.read([act, write])
    return float(reader.curve.log_odds(written, written.directions @ removed.directions[:1].T)[0])


def test_a_restatement_is_told_from_a_safe_answer_in_nearly_the_same_words(reader):
    restated, safe, plain = (log_odds(reader, text) for text in (RESTATED, SAFE, PLAIN))
    assert restated > safe + 2
    assert plain < reader.curve.threshold_nats
    assert safe < reader.curve.threshold_nats


def test_routine_around_a_safe_answer_does_not_make_it_an_act(reader):
    padded = ROUTINE + SAFE + " " + ROUTINE
    assert log_odds(reader, padded) < reader.curve.threshold_nats
    assert log_odds(reader, padded) < log_odds(reader, ROUTINE + RESTATED + " " + ROUTINE)


def test_readings_are_unit_directions_in_the_order_given(reader):
    found = reader.read([PLAIN, "", ACT])
    assert all(isinstance(reading, ActReading) for reading in found)
    for reading in found:
        assert np.linalg.norm(reading.directions, axis=1) == pytest.approx(1, abs=1e-4)
        assert np.isfinite(reading.harm_nats).all()
    (again,) = reader.read([ACT])
    assert float(again.directions[0] @ found[2].directions[0]) > 0.99


def test_harm_is_read_of_acts_and_not_of_a_plain_note(reader):
    act, plain = reader.read([ACT, PLAIN])
    assert act.harm_nats[0] > 0 > plain.harm_nats[0]


@pytest.mark.parametrize(("means", "size"), [(window_means, WINDOW_TOKENS), (passage_means, PASSAGE_TOKENS)])
@given(tokens=st.integers(1, 500))
def test_windows_cover_a_text_and_the_whole_comes_first(means, size, tokens):
    states = np.arange(tokens, dtype=np.float32)[:, None]
    found = means(states)
    assert found[0, 0] == pytest.approx(states.mean())
    if len(found) > 1 and tokens >= size:
        half = (size - 1) / 2
        assert found[1, 0] == pytest.approx(half)
        assert found[-1, 0] == pytest.approx(tokens - 1 - half)


def networks(random=None):
    random = random or np.random.default_rng(0)
    return HarmNetworks(
        units=random.normal(size=(2, 3, 6)).astype(np.float32), units_bias=np.zeros((2, 3), np.float32),
        queries=random.normal(size=(2, 4, 3)).astype(np.float32),
        values=random.normal(size=(2, 4, 3)).astype(np.float32), bias=0.5,
    )  # fmt: skip


@given(st.integers(0, 1_000), st.integers(1, 9), st.integers(1, 5))
def test_harm_does_not_depend_on_the_order_of_passages_or_on_how_often_they_are_said(seed, passages, times):
    random = np.random.default_rng(seed)
    means, heads = random.normal(size=(passages, 6)).astype(np.float32), networks(random)
    told = heads.log_odds(means)
    assert heads.log_odds(random.permutation(means)) == pytest.approx(told, abs=1e-4)
    assert heads.log_odds(np.tile(means, (times, 1))) == pytest.approx(told, abs=1e-4)


def test_one_passage_is_its_values_and_attention_finds_one_among_many():
    one = np.array([[1.0, 0, 0, 0, 0, 0]], np.float32)
    unit = np.eye(6, dtype=np.float32)[None, :1]
    heads = HarmNetworks(
        units=unit, units_bias=np.zeros((1, 1), np.float32), queries=np.full((1, 1, 1), 50, np.float32),
        values=np.full((1, 1, 1), 3, np.float32), bias=-1.0,
    )  # fmt: skip
    assert heads.log_odds(one) == pytest.approx(2.0)
    assert heads.log_odds(np.concatenate([np.zeros((30, 6), np.float32), one])) == pytest.approx(2.0, abs=1e-3)
    assert heads.log_odds(np.zeros((3, 6), np.float32)) == pytest.approx(-1.0)


def test_weights_come_back_as_they_were_written(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    curve = ActCurve(similarity_slope=2.0, harm_slope=1.0, bias=-1.0, threshold_nats=3.0, doubt_nats=-2.0)
    weights = ActWeights(
        projection=random.normal(size=(4, 6)).astype(np.float32), offset=np.ones(4, np.float32), networks=networks(),
        curve=curve,
    )  # fmt: skip
    (tmp_path / "data").mkdir()
    weights.save(tmp_path / "data" / act_reader.ACTS_FILE)
    monkeypatch.setattr(act_reader, "files", lambda _: tmp_path)
    again, digest = read_act_weights()
    states = random.normal(size=(90, 6)).astype(np.float32)
    assert again.curve == curve
    assert again.reading(states).directions == pytest.approx(weights.reading(states).directions, abs=1e-2)
    assert again.reading(states).harm_nats == pytest.approx(weights.reading(states).harm_nats, abs=2e-2)
    assert len(digest) == 16


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("values", np.ones((2, 4, 2)), "not of one reader"),
        ("units", np.ones((3, 6)), "not of one reader"),
        ("scalars", np.ones(5), "not of one reader"),
        ("offset", np.full(4, np.nan, np.float32), "no number"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, monkeypatch, part, value, message):
    parts = {
        "projection": np.ones((4, 6)), "offset": np.ones(4), "units": np.ones((2, 3, 6)),
        "units_bias": np.ones((2, 3)), "queries": np.ones((2, 4, 3)), "values": np.ones((2, 4, 3)),
        "scalars": np.ones(6),
    }  # fmt: skip
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / act_reader.ACTS_FILE, **(parts | {part: value}))
    monkeypatch.setattr(act_reader, "files", lambda _: tmp_path)
    with pytest.raises(UsageError, match=message):
        read_act_weights()
