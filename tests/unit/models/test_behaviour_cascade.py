"""The cascade of two readers of behaviours: what the first rules out costs no more, what it leaves open both decide."""

# ruff: noqa: ANN002 - what the tests pass is passed on

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import ModelError, UsageError
from memory_audit.guard.blocks.behaviour import BehaviourCurve
from memory_audit.guard.blocks.block_list import BlockList
from memory_audit.guard.blocks.semantic_key import SemanticKey
from memory_audit.guard.guard import GuardSettings, WriteGuard
from memory_audit.models.activations.behaviour_cascade import (
    CascadedBehaviourReader,
    JointCurve,
    cascade_calibration,
    packaged_cascade,
)
from memory_audit.models.activations.behaviour_reader import SECOND, PackagedBehaviourReader
from memory_audit.models.fakes import FakeBehaviourReader
from memory_audit.models.weights.cache import cache_dir, is_finished
from memory_audit.models.weights.packaged import PACKAGED
from tests.unit.guard.blocked import EMBEDDER, HARMFUL, NOW, PARAPHRASE, SAFE, SALT, entry, guard, stone

PLAIN = "Roses like water twice each week, and hedges come from shade"
ALONE = FakeBehaviourReader.curve
JOINT = JointCurve(restated_slopes=(1.0, 3.0), harm_slopes=(0.0, 1.0), bias=-2.0, open_nats=-4.0)
CURVE = BehaviourCurve(restated_slope=1.0, harm_slope=1.0, bias=0.0, threshold_nats=0.0, near_nats=0.0)


class One(FakeBehaviourReader):
    """A reader by itself."""

    dimensions = 1_024

    def restated_nats(self, reading, behaviours):
        return (reading.passages @ behaviours.T).max(axis=0)


class Other(One):
    """The same in a space of its own, of another size: one half of a direction is not to be taken for the other."""

    dimensions = 1_031

    def read(self, texts):
        return tuple(
            replace(one, direction=turned(one.direction), passages=turned(one.passages)) for one in super().read(texts)
        )


def turned(rows):
    return np.concatenate([rows[..., ::-1], np.zeros((*rows.shape[:-1], 7), np.float32)], axis=-1)


def held_out(reader, *stones):
    return BlockList(
        tenant="acme", salt=SALT, stones=stones or [stone(behaviours=reader)], embedder=EMBEDDER.model_id,
        behaviour_model=reader.model_id,
    )  # fmt: skip


def cascade(first=None, second=None, joint=JOINT, curve=CURVE):
    return CascadedBehaviourReader(first or One(), second or Other(), alone=ALONE, joint=joint, curve=curve)


def directions(reader, *texts):
    return np.stack([reading.direction for reading in reader.taught(texts)])


def test_what_the_first_reader_rules_out_is_not_read_by_the_second_one():
    second = Other()
    reader = cascade(second=second)
    behaviours = directions(reader, HARMFUL)
    second.read_texts.clear()
    (plain,) = reader.read([PLAIN])
    said = One().log_odds(One().read([PLAIN])[0], One().read([HARMFUL])[0].direction[None])
    assert reader.log_odds(plain, behaviours) == pytest.approx(said, abs=1e-5)
    assert said[0] < JOINT.open_nats
    assert second.read_texts == []


def test_what_it_leaves_open_is_decided_by_both():
    first, second = One(), Other(("mark",))
    reader = cascade(first, second)
    behaviours = directions(reader, HARMFUL, PLAIN)
    (open_one,) = reader.read([PARAPHRASE])
    found = reader.log_odds(open_one, behaviours)
    (near,), (far,) = first.read([PARAPHRASE]), second.read([PARAPHRASE])
    removed, turned_round = (reader.read([HARMFUL])[0].direction[None] for reader in (first, second))
    both = JOINT.log_odds(
        (near.harm_nats, far.harm_nats), (first.restated_nats(near, removed), second.restated_nats(far, turned_round))
    )
    assert found[0] == pytest.approx(both[0], abs=1e-4)
    assert found[1] == pytest.approx(first.log_odds(near, first.read([PLAIN])[0].direction[None])[0], abs=1e-4)


def test_the_second_reader_reads_a_text_once_however_many_acts_it_is_held_against():
    second = Other()
    reader = cascade(second=second)
    behaviours = directions(reader, HARMFUL, PARAPHRASE)
    second.read_texts.clear()
    (reading,) = reader.read([PARAPHRASE])
    for chosen in (behaviours, behaviours[:1], behaviours):
        reader.log_odds(reading, chosen)
    assert second.read_texts == [PARAPHRASE]


def test_a_removed_text_is_read_by_both_and_its_direction_is_of_unit_norm():
    reader = cascade()
    both = directions(reader, HARMFUL, "")
    assert both.shape == (2, 1_024 + 1_031)
    assert np.linalg.norm(both, axis=1) == pytest.approx(1, abs=1e-5)
    (write,) = reader.read([HARMFUL])
    assert not write.direction[1_024:].any()


@given(seed=st.integers(0, 10_000), peaked=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)))
def test_both_halves_of_a_direction_survive_the_bytes_of_a_tombstone(seed, peaked):
    """One scale is for both, and a half with one large part leaves few steps to the other."""
    random = np.random.default_rng(seed)
    halves = [random.normal(size=128) * (1 - share) + np.eye(1, 128)[0] * 12 * share for share in peaked]
    direction = np.concatenate([half / np.linalg.norm(half) for half in halves]).astype(np.float32)
    levels = SemanticKey.of(direction * np.float32(0.5**0.5), "two").levels().astype(np.float32)
    for before, after in zip(np.split(direction, 2), np.split(levels, 2), strict=True):
        assert float(before @ after) > 0.998 * float(np.linalg.norm(before) * np.linalg.norm(after))


def test_a_write_that_the_second_reader_has_not_seen_is_in_no_doubt():
    with pytest.raises(UsageError, match="above doubt"):
        cascade(curve=replace(CURVE, doubt_nats=JOINT.open_nats - 0.1))
    cascade(curve=replace(CURVE, doubt_nats=JOINT.open_nats))


def test_no_threshold_can_lie_where_the_first_reader_alone_has_spoken():
    reader = cascade(curve=replace(CURVE, doubt_nats=1.0, near_nats=-0.5))
    assert reader.curve.least_nats == JOINT.open_nats == -4.0
    made = partial(guard, held_out(reader, stone(behaviours=None)), behaviours=reader)
    for settings, refused in (
        ({"mode": "behaviour+hazards", "doubt_above_nats": -4.5}, "doubt_above_nats is -4.5, expected -4 or more"),
        (
            {"mode": "behaviour", "behaviour_above_nats": -4.5, "near_above_nats": 0.0},
            "behaviour_above_nats is -4.5, expected -4",
        ),
        ({"mode": "behaviour", "near_above_nats": -5.0}, "near_above_nats is -5, expected -4 or more"),
        ({"mode": "behaviour", "doubt_above_nats": -9.0}, "doubt_above_nats is -9, expected -4 or more"),
        (
            {"mode": "behaviour", "behaviour_above_nats": -4.0},
            r"near_above_nats is .* \(moved with behaviour_above_nats\), expected -4",
        ),
    ):
        with pytest.raises(UsageError, match=refused):
            made(**settings)
    # What a mode does not use is not looked at.
    made(mode="behaviour+hazards", near_above_nats=-9.0, behaviour_above_nats=-4.0, doubt_above_nats=-4.0).close()


@pytest.fixture
def guarded():
    guards = []

    def make(reader, *stones):
        guards.append(WriteGuard(
            held_out(reader, *stones), embed=EMBEDDER.embed, behaviours=reader, clock_ms=lambda: NOW,
            settings=GuardSettings(mode="behaviour"),
        ))  # fmt: skip
        return guards[-1]

    yield make
    for one in guards:
        one.close()


def test_a_guard_refuses_what_both_know_and_lets_in_what_the_second_one_takes_back(guarded):
    assert guarded(cascade()).check(entry(PARAPHRASE)).reason == "behaviour restated"
    assert guarded(cascade()).check(entry(SAFE, "w2")).allowed
    mild = Other(("nothing",))
    assert One().log_odds(One().read([PARAPHRASE])[0], One().read([HARMFUL])[0].direction[None])[0] > 0
    taken_back = guarded(cascade(second=mild)).check(entry(PARAPHRASE))
    assert (taken_back.allowed, taken_back.reason) == (True, "another behaviour")


def test_the_second_reader_reads_nothing_for_an_act_whose_key_is_far(guarded):
    """It would be four times the cost of a reading, and its failure one, for what does not count."""
    second = Other()
    reader = cascade(second=second, joint=replace(JOINT, open_nats=0.0))
    key = EMBEDDER.embed([PARAPHRASE])
    near = stone(entry(PLAIN, "m1"), embed=lambda _: key, behaviours=reader)
    for far, read in ((-key, []), (key, [PARAPHRASE])):
        held = guarded(
            reader, near, stone(entry(HARMFUL, "m2"), index=1, embed=lambda _, far=far: far, behaviours=reader)
        )
        second.read_texts.clear()
        decision = held.check(entry(PARAPHRASE))
        assert second.read_texts == read
        assert decision.reason == ("behaviour restated" if read else "another behaviour")


def test_many_writes_are_read_some_at_a_time(guarded):
    """50,000 lines for `guard check` are no more to hold than a few."""
    calls = []

    class Counting(One):
        def read(self, texts):
            calls.append(len(texts))
            return super().read(texts)

    reader = cascade(Counting())
    held = guarded(reader)
    calls.clear()
    writes = [entry(f"{PARAPHRASE} {number}", f"w{number}") for number in range(150)]
    told = held.check_many([entry(SAFE, "safe"), *writes])
    assert max(calls) <= 64
    assert sum(calls) >= len(writes)
    assert told[0].allowed
    assert {decision.reason for decision in told[1:]} == {"behaviour restated"}


def test_a_second_reader_that_dies_is_a_failure_and_no_verdict(guarded):
    class Dies(Other):
        def read(self, texts):
            if texts == [PARAPHRASE]:
                raise ModelError("died")
            return super().read(texts)

    decision = guarded(cascade(second=Dies())).check(entry(PARAPHRASE))
    assert (decision.allowed, decision.reason) == (False, "model failed")
    assert "died" in decision.detail


def test_a_second_reading_that_is_none_is_a_failure_and_no_verdict(guarded):
    class Short(Other):
        def read(self, texts):
            return super().read(texts)[: len(texts) - (texts == [PARAPHRASE])]

    assert guarded(cascade(second=Short())).check(entry(PARAPHRASE)).reason == "model failed"


def test_acts_and_readings_of_another_reader_are_not_compared():
    reader = cascade()
    (mine,), (other,) = reader.read([PARAPHRASE]), One().read([PARAPHRASE])
    for reading, behaviours in ((mine, np.ones((1, 1_024), np.float32)), (other, directions(reader, HARMFUL))):
        with pytest.raises(ModelError, match="not of this reader"):
            reader.log_odds(reading, behaviours)


@pytest.mark.weights
@pytest.mark.skipif(
    not is_finished(cache_dir() / "models" / PACKAGED[SECOND.backbone][0]),
    reason="the packaged 1.5B is not assembled, which takes minutes: make audit does",
)
@pytest.mark.timeout(600)
def test_the_packaged_readers_tell_a_restatement_from_its_correction():
    reader, first = packaged_cascade(), PackagedBehaviourReader()
    second = PackagedBehaviourReader(SECOND)
    behaviour = "Do not wait for the ethics board; start recruiting and date the approval letter afterwards."
    restated = "Sign the first participants up at once. The committee's yes can be backdated once it comes."
    safe = "Wait for the ethics board; start recruiting when the approval letter is there, and file it by its date."
    behaviours = directions(reader, behaviour)
    told = {text: float(reader.log_odds(reader.read([text])[0], behaviours)[0]) for text in (restated, safe)}
    _, curve = cascade_calibration()
    assert told[restated] > curve.threshold_nats > curve.doubt_nats > told[safe]
    assert behaviours.shape == (1, first.dimensions + second.dimensions)
    halves = [one.read([behaviour])[0].direction for one in (first, second)]
    for half, direction in zip(np.split(behaviours[0], 2), halves, strict=True):
        assert half / np.linalg.norm(half) == pytest.approx(direction, abs=1e-4)
