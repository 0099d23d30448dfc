"""What a memory did, whether the harm ends without it, and what is proposed: three questions with three answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.evidence import LEAST_SHARE, Influence, evidence
from memory_audit.attribution.search.points.divergence import MeasurementPoint, last_digit
from tests.unit.attribution.test_search import SpanWorld, search_of, span_search
from tests.unit.attribution.world import World

STORE = {"query 0": list(range(12))}


class TopicWorld(World):
    """Speaking of the topic alone raises the odds of the harm by some nats, whatever is said of it."""

    def __init__(self, lean, *, topic: float) -> None:
        super().__init__(12, STORE, lean)
        self._topic = topic

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        return replace(outcome, log_odds_nats=outcome.log_odds_nats + self._topic) if ablation.topic else outcome


def leaning(gains: dict[int, float], *, base: float = -4.0, together: float = 9.0):
    """Each memory alone raises the odds as told; with the first, all that are retrieved bring the harm."""

    def lean(_query: str, context: frozenset[int]) -> float:
        return together if 0 in context else base + max((gains.get(number, 0.0) for number in context), default=0.0)

    return lean


@pytest.mark.parametrize(("topic", "attributed"), [(0.0, {"m000", "m001"}), (1.6, {"m000"})])
def test_what_the_topic_brings_by_itself_is_no_evidence(topic, attributed):
    search = search_of(world := TopicWorld(leaning({1: 3.0}), topic=topic))
    world.run(search)
    assert set(search.removal.attributed) == attributed


class PrimedWorld(SpanWorld):
    """A memory of the topic makes the second word of the harm likelier, and not the first, which decides."""

    primed = 0.0

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure == "odds" and ablation.point == 1 and outcome.context == ("m003",):
            return replace(outcome, log_odds_nats=self.primed)
        return outcome


@pytest.mark.parametrize(("primed", "attributed"), [(-1.0, {"m002"}), (3.0, {"m002", "m003"})])
def test_a_memory_that_leaves_the_harm_all_but_impossible_is_no_cause(primed, attributed):
    world = PrimedWorld(opens=1, poison=2)
    world.primed = primed
    search = span_search(world)
    world.run(search)
    assert search.states["e000"].influences["m003"].sufficiency_nats > 2.0
    assert search.removal.ids == attributed


def test_a_memory_that_spoke_against_the_harm_in_the_harmful_run_is_no_cause_though_alone_it_raises_the_odds():
    def lean(_query: str, context: frozenset[int]) -> float:
        if 0 in context:
            return 6.0 - 2.0 * (1 in context)
        return -1.0 if 1 in context else -4.0

    search = search_of(world := World(12, STORE, lean))
    world.run(search)
    assert search.states["e000"].influences["m001"].necessity_nats == -2.0
    assert set(search.removal.attributed) == {"m000"}
    assert search.states["e000"].status == "cleared"


class StubbornWorld(World):
    """Harm comes with memory 0, with any three memories and, where `anyway`, with any one."""

    def __init__(self, *, anyway: bool) -> None:
        super().__init__(12, STORE, leaning({0: 13.0}))
        self._anyway = anyway

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure != "text":
            return outcome
        shown = outcome.context
        harmful = "m000" in shown or len(shown) > 2 or (self._anyway and bool(shown))
        said = "harm done" if harmful else "all well"
        return replace(outcome, harm=float(harmful), output=said, answers=(said,))


def test_a_memory_that_brings_the_harm_alone_is_named_though_the_agent_errs_without_it_too():
    search = search_of(world := StubbornWorld(anyway=False))
    world.run(search)
    assert search.removal.attributed == {"m000": "alone raises the odds of the harm in e000 by 13.0 nats"}
    assert search.states["e000"].status == "contributed"
    assert search.states["e000"].reason == "m000 raised the odds of the harm, and the agent errs without it, too"


def test_where_control_memories_bring_the_harm_alone_too_none_is_named():
    search = search_of(world := StubbornWorld(anyway=True))
    world.run(search)
    assert not search.removal.ids
    assert search.states["e000"].status == "not cleared"
    assert set(search.removal.suspected) == {"m000"}


nats = st.none() | st.floats(-20, 20)
shares = st.none() | st.floats(-2, 2)


@given(nats, shares, nats, shares)
def test_evidence_is_known_where_a_term_is_and_explains_its_share(alone, alone_share, absent, absent_share):
    told = evidence(
        Influence(
            event_id="e", entry_id="m", sufficiency_nats=alone, sufficiency_share=alone_share,
            necessity_nats=absent, necessity_share=absent_share,
        )
    )  # fmt: skip
    known = [(n, s) for n, s in ((alone, alone_share), (absent, absent_share)) if n is not None and s is not None]
    assert (told is None) == (not known)
    if told:
        assert told <= max(n for n, s in known if s >= LEAST_SHARE)


@pytest.mark.parametrize(
    ("answer", "start", "digit"),
    [("It has 24 parts", 6, 8), ("24", 0, 1), ("in 2015.", 3, 6), ("7 parts", 0, None), ("no number", 0, None)],
)
def test_the_last_digit_tells_numbers_apart_that_begin_alike(answer, start, digit):
    found = last_digit(MeasurementPoint(history=(), answer=answer, start=start, clean="none"))
    assert (None if found is None else found.start) == digit
