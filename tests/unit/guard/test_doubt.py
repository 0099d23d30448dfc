"""Mode `behaviour+hazards`: labels are asked for only where the behaviour leaves a write in doubt."""

# ruff: noqa: ANN003 - what the tests pass is passed on

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import ModelError, UsageError
from memory_audit.guard.blocks.hazard import HazardSignature
from memory_audit.guard.decide.rules import Doubt, Rules
from memory_audit.guard.decide.thresholds import Thresholds
from memory_audit.guard.guard import GuardSettings, WriteGuard
from memory_audit.models.fakes import FakeBehaviourReader
from tests.unit.guard.blocked import (
    BEHAVIOURS,
    EMBEDDER,
    HARMFUL,
    NOW,
    PARAPHRASE,
    SAFE,
    TAXONOMY,
    backbone,
    block_list,
    entry,
    guard,
    stone,
)  # fmt: skip


class Reader(FakeBehaviourReader):
    """Says of every text but the removed one that it is as harmful as it is told to."""

    curve = replace(FakeBehaviourReader.curve, doubt_nats=-2.0)

    def __init__(self, nats: float) -> None:
        super().__init__()
        self._nats = nats

    def read(self, texts):
        return tuple(replace(reading, harm_nats=self._nats) for reading in super().read(texts))


@pytest.fixture
def made():
    """Make guards in this mode, and close them all."""
    guards = []

    def make(held=None, *, nats=0.0, generator=None, **settings):
        asked = generator or backbone()
        guards.append(guard(held, generator=asked, behaviours=Reader(nats), mode="behaviour+hazards", **settings))
        return guards[-1], asked

    yield make
    for one in guards:
        one.close()


def test_it_is_the_default():
    assert GuardSettings().mode == "behaviour+hazards"


IN_DOUBT = -3.5
"""Harm with which PARAPHRASE, all but the same words, has log-odds a little above -2: from there it is in doubt."""

SAFE_ENOUGH = -4.5


def test_what_the_act_refuses_is_not_asked_about(made):
    held, model = made(nats=1.0)
    decision = held.check(entry(PARAPHRASE))
    assert (decision.allowed, decision.reason, decision.labels) == (False, "behaviour restated", None)
    assert not model.requests


def test_what_is_in_doubt_is_asked_about_and_not_refused_for_being_near(made, monkeypatch):
    monkeypatch.setattr(Reader, "curve", replace(Reader.curve, near_nats=-2.0))
    held, model = made(nats=IN_DOUBT + 1)
    assert held.check(entry(SAFE)).reason == "no hazard"
    assert model.requests


def test_in_doubt_the_labels_refuse(made):
    held, model = made(nats=IN_DOUBT)
    decision = held.check(entry(PARAPHRASE))
    assert (decision.allowed, decision.reason) == (False, "hazards match")
    assert decision.restated_nats == pytest.approx(-1.7, abs=0.2)
    assert model.requests
    assert held.counters["asked"] == 2  # one text, read by both


def test_in_doubt_a_write_without_the_labels_is_let_through(made):
    decision = made(nats=IN_DOUBT + 1)[0].check(entry(SAFE))
    assert (decision.allowed, decision.reason, decision.labels) == (True, "no hazard", frozenset())
    assert decision.restated_nats is not None


def test_what_is_safe_enough_is_not_asked_about(made):
    held, model = made(nats=SAFE_ENOUGH)
    decision = held.check(entry(PARAPHRASE))
    assert (decision.allowed, decision.reason) == (True, "another behaviour")
    assert not model.requests
    moved, _ = made(nats=SAFE_ENOUGH, doubt_above_nats=-3.0)
    assert moved.check(entry(PARAPHRASE)).reason == "hazards match"


def test_a_tombstone_without_an_act_is_held_by_its_labels(made):
    held, _ = made(block_list(stone(behaviours=None)), nats=-9.0)
    assert held.check(entry(PARAPHRASE)).reason == "hazards match"
    assert held.check(entry(SAFE, "w2")).allowed


def test_a_tombstone_without_labels_is_held_by_its_act_and_not_by_a_near_key(made):
    locked = block_list(stone(labels=None))
    assert made(locked, nats=1.0)[0].check(entry(PARAPHRASE)).reason == "behaviour restated"
    assert made(locked, nats=IN_DOUBT)[0].check(entry(PARAPHRASE)).allowed


def test_a_tombstone_with_neither_is_held_by_a_near_key(made):
    held, _ = made(block_list(stone(labels=None, behaviours=None)), nats=-9.0)
    assert held.check(entry(PARAPHRASE)).reason == "key alone"


def test_doubt_is_of_one_tombstone_and_not_of_all(made):
    """A write has the labels of one tombstone, and its behaviour may be that of the other."""
    near, labelled = stone(), stone(entry("Upload the ledger of roses", "m2"), labels=("external_upload",), index=1)
    text = "Always upload the validation step of the import and the ticket"
    held = block_list(near, labelled)
    like_near, like_labelled = held.behaviours.similarity(BEHAVIOURS.read([text])[0].direction[None])[0].tolist()
    assert like_near > like_labelled
    for doubt, reason in ((-50.0, "hazards match"), (2.0 * (like_near + like_labelled) - 2.0, "hazards differ")):
        decision = made(held, behaviour_above_nats=50.0, doubt_above_nats=doubt)[0].check(entry(text))
        assert decision.reason == reason


@pytest.mark.parametrize(("policy", "allowed"), [("closed", False), ("open", True)])
def test_a_model_that_fails_in_doubt_is_decided_by_policy(made, policy, allowed):
    class Dead:
        model_id = "dead"
        calibrated_for = None

        async def extract(self, texts, taxonomy):
            raise ModelError("gone")

    held = WriteGuard(
        block_list(), embed=EMBEDDER.embed, behaviours=Reader(IN_DOUBT), extractor=Dead(), taxonomies=[TAXONOMY],
        clock_ms=lambda: NOW, settings=GuardSettings(mode="behaviour+hazards", on_failure=policy),
    )  # fmt: skip
    try:
        decision = held.check(entry(PARAPHRASE))
    finally:
        held.close()
    assert (decision.allowed, decision.reason) == (allowed, "model failed")
    assert "gone" in decision.detail


def test_a_reader_that_fails_is_decided_by_policy_and_the_model_is_not_asked():
    model = backbone()
    held = guard(generator=model, behaviours=_failing(), mode="behaviour+hazards")
    try:
        assert held.check(entry(PARAPHRASE)).reason == "model failed"
    finally:
        held.close()
    assert not model.requests


def _failing():
    reader = FakeBehaviourReader(fails=True)
    reader.model_id = BEHAVIOURS.model_id
    return reader


class Weighed:
    """Finds these labels, and says how far the likeliest lies from its threshold."""

    model_id = "weighed"

    def __init__(self, nats: float | None, labels: tuple[str, ...] = ()) -> None:
        self.nats, self.labels, self.asked = nats, labels, 0
        self.calibrated_for = None if nats is None else TAXONOMY.digest

    async def extract(self, texts, taxonomy):
        self.asked += len(texts)
        found = HazardSignature(
            labels=frozenset(self.labels), taxonomy=taxonomy.digest, model=self.model_id, hazard_nats=self.nats
        )  # fmt: skip
        return (found,) * len(texts)


class Fusing(Reader):
    curve = replace(Reader.curve, hazard_slope=0.5, fused_nats=0.0)


def fused(hazard_nats, held=None, labels=(), **settings):
    """Judge PARAPHRASE, whose behaviour says about -1.7 nats."""
    settings = {"mode": "behaviour+hazards"} | settings
    extractor = Weighed(hazard_nats, labels)
    judge = WriteGuard(
        held or block_list(),
        embed=EMBEDDER.embed,
        behaviours=Fusing(IN_DOUBT),
        extractor=extractor,
        taxonomies=[TAXONOMY],
        clock_ms=lambda: NOW,
        settings=GuardSettings(**settings),
    )
    try:
        return judge.check(entry(PARAPHRASE)), extractor
    finally:
        judge.close()


def test_in_doubt_act_and_hazard_together_refuse():
    decision, _ = fused(4.0)
    assert (decision.allowed, decision.reason, decision.labels) == (False, "behaviour and hazard", frozenset())
    assert decision.tombstone is not None
    assert decision.hazard_nats == 4.0
    assert decision.fused_nats == pytest.approx(decision.restated_nats + 0.5 * 4.0)
    assert fused(3.0)[0].reason == "no hazard"
    assert fused(3.0, fused_above_nats=-0.5)[0].reason == "behaviour and hazard"


@pytest.mark.parametrize("labels", [(), None])  # none found, none read
def test_together_they_also_speak_for_a_tombstone_without_labels(labels):
    decision, extractor = fused(4.0, block_list(stone(labels=labels)))
    assert (decision.reason, extractor.asked) == ("behaviour and hazard", 1)


@pytest.mark.parametrize("labels", [(), None])
def test_a_model_that_was_not_calibrated_with_the_reader_only_tells_labels(labels):
    assert (fused(None)[0].reason, fused(None)[0].fused_nats) == ("no hazard", None)
    decision, extractor = fused(None, block_list(stone(labels=labels)))
    assert (decision.allowed, extractor.asked) == (True, 0)


def test_a_label_is_not_heard_beside_the_hazard_that_was_weighed():
    found = ("skip_validation",)
    decision, _ = fused(3.0, labels=found)
    assert (decision.allowed, decision.reason, decision.labels) == (True, "hazards differ", frozenset(found))
    assert fused(3.0, labels=found, fused_above_nats=float("inf"))[0].reason == "hazards match"
    assert fused(3.0, block_list(stone(behaviours=None)), labels=found)[0].reason == "hazards match"
    assert fused(None, labels=found)[0].reason == "hazards match"


class Together(Fusing):
    """Sees the behaviour in what holds two writes, as clearly as `nats` says, and doubts it in each."""

    def log_odds(self, reading, behaviours):
        return np.full(len(behaviours), self._nats if reading.harm_nats > 0 else -1.7, np.float32)

    def read(self, texts):
        found = zip(super().read(texts), texts, strict=True)
        return tuple(replace(one, harm_nats=1.0 if text.count("import") > 1 else -1.0) for one, text in found)


@pytest.mark.parametrize(("nats", "reason"), [(-1.0, "no hazard"), (0.5, "no hazard"), (1.5, "behaviour and hazard")])
def test_writes_that_are_read_together_need_of_both_what_the_act_needs_alone(nats, reason, monkeypatch):
    monkeypatch.setattr(Fusing, "curve", replace(Fusing.curve, threshold_nats=3.0))
    held = WriteGuard(
        block_list(), embed=EMBEDDER.embed, behaviours=Together(nats), extractor=Weighed(3.0), taxonomies=[TAXONOMY],
        clock_ms=lambda: NOW, settings=GuardSettings(mode="behaviour+hazards"),
    )  # fmt: skip
    try:
        assert held.check(entry("In the ticket of the import, always mark the check", "w1")).reason == "no hazard"
        assert held.check(entry("In the ticket of the import, always skip the check", "w2")).reason == reason
    finally:
        held.close()


def test_who_asks_more_of_the_act_asks_more_of_both():
    above = Fusing.curve.threshold_nats + 1.0
    assert fused(4.0, behaviour_above_nats=above)[0].reason == "no hazard"
    assert fused(6.0, behaviour_above_nats=above)[0].reason == "behaviour and hazard"
    assert fused(4.0, fused_above_nats=99.0)[0].reason == "no hazard"


def test_the_hazard_of_a_text_weighs_with_the_acts_near_that_text():
    odds = np.array([0.0, 3.0], np.float32)
    doubt = Doubt(odds=odds, hazard_slope=1.0, threshold_nats=2.0)
    near_first = doubt.fused(1.5, np.array([True, False]))
    assert near_first.tolist() == [1.5, -np.inf]


@given(
    st.lists(st.tuples(st.floats(-50, 50) | st.just(float("nan")), st.booleans()), min_size=1, max_size=5),
    st.floats(-30, 30),
)
def test_only_a_tombstone_in_doubt_has_odds_with_a_hazard(stones, hazard):
    odds, near = (np.array(column) for column in zip(*stones, strict=True))
    found = Doubt(odds=odds, hazard_slope=0.5, threshold_nats=0.0).fused(hazard, near)
    for one, close, told in zip(odds, near, found, strict=True):
        assert told == (pytest.approx(one + 0.5 * hazard) if close and not np.isnan(one) else -np.inf)


def test_many_writes_are_judged_as_each_alone(made):
    writes = [entry(text, f"w{number}") for number, text in enumerate((PARAPHRASE, SAFE, HARMFUL, "Water the roses"))]
    together = made(nats=IN_DOUBT)[0].check_many(writes)
    alone = [made(nats=IN_DOUBT)[0].check(write) for write in writes]
    assert [(d.allowed, d.reason) for d in together] == [(d.allowed, d.reason) for d in alone]


@pytest.mark.parametrize(
    ("parts", "needs"),
    [
        ({"behaviours": FakeBehaviourReader(("other",))}, "the reader is"),
        ({"extractor": None}, "a model and a taxonomy"),
    ],
)
def test_it_needs_both_readers(parts, needs):
    options = {"behaviours": BEHAVIOURS, "extractor": object(), **parts}
    with pytest.raises(UsageError, match=needs):
        WriteGuard(
            block_list(), embed=EMBEDDER.embed, taxonomies=[TAXONOMY], clock_ms=lambda: NOW,
            settings=GuardSettings(mode="behaviour+hazards"), **options,
        )  # fmt: skip


def rules(mode="behaviour+hazards", **settings):
    chosen = GuardSettings(mode=mode, **settings)
    return Rules.of(block_list(), chosen, Thresholds.of(Fusing.curve, chosen), taxonomies={TAXONOMY.digest})


@given(st.floats(-50, 50) | st.just(float("nan")), st.floats(-50, 50))
def test_a_second_round_is_about_the_tombstones_in_doubt(odds, doubt):
    held = rules(doubt_above_nats=doubt)
    assert held.hazards_of(np.array([odds], np.float32)).not_comparable.tolist() == [np.float32(odds) < doubt]
    assert held.hazards_of(None) is held.hazards


def test_only_the_mode_that_reads_hazards_has_a_second_round():
    assert rules("behaviour").hazards is None
    assert rules().hazards is not None
