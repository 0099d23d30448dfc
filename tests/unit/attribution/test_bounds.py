"""ControlMemories are asked while a verdict hangs on them: the verdicts are those of asking all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.attribution.search.controls import ControlMemories
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import SearchSettings
from tests.unit.attribution.test_format_effects import AllAtOnce, HalfRepairableWorld, asking
from tests.unit.attribution.world import World, make_event


class GradedWorld(World):
    """Each memory adds nats at each event and point; any memory may bring the first; harm comes above a sum."""

    def __init__(self, gains, *, orders=None, form=0.0, harmful_above=2.0, k=3) -> None:
        size = len(next(iter(gains.values()))[0])
        super().__init__(size, orders or {query: list(range(size)) for query in gains}, lambda _query, _shown: 0.0, k=k)
        self._gains, self._form, self._above = gains, form, harmful_above

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        shown = [int(entry_id[1:]) for entry_id in outcome.context]
        rows = self._gains[event.query]
        if ablation.measure == "text":
            harmful = sum(rows[0][number] for number in shown) > self._above
            said = f"harm done now for {event.query}" if harmful else "all well"
            return replace(outcome, harm=float(harmful), output=said, answers=(said,))
        if ablation.measure == "continuation":
            return replace(outcome, output=" however")
        row = rows[min(ablation.point, len(rows) - 1)]
        form = self._form * bool(shown) * (ablation.point == 0)
        return replace(outcome, log_odds_nats=-4.0 + form + sum(row[number] for number in shown))


def searched(world, controls=ControlMemories):
    events = [make_event(number, query=query) for number, query in enumerate(world._gains)]
    with asking(controls):
        search = SetSearch(world.memory, events, SearchSettings(attribution_nats=2.0))
    world.run(search)
    return search


def sparse_world(seed: int, events: int) -> GradedWorld:
    """As in life: one or two poisons in or near each context, little else; contexts small, or large and screened."""
    rng = random.Random(seed)
    size, k = rng.choice([(9, 3), (14, 3), (20, 13)])
    gains, orders = {}, {}
    points = rng.choice([1, 2, 2, 3])
    for number in range(events):
        order = list(range(size))
        rng.shuffle(order)
        poison = set(rng.sample(order[: k + 2], rng.randint(1, 2)))
        rows = [[rng.choice([-1.0, -0.3, 0.0, 0.0, 0.0, 0.3, 0.7, 0.9]) for _ in order] for _ in range(points)]
        for row in rows:
            for entry in poison:
                row[entry] = rng.choice([1.2, 1.6, 2.1, 2.5, 3.0, 6.0])
            for entry in order[-3:] if rng.random() < 0.8 else ():
                row[entry] = rng.choice([-1.0, 0.0, 0.3, 0.9, 1.2])
        gains[f"query {number}"], orders[f"query {number}"] = rows, order
    return GradedWorld(
        gains, orders=orders, form=rng.choice([0.0, 0.0, 1.5, 2.5, 5.0]), harmful_above=rng.choice([1.0, 2.0, 3.0]), k=k
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_one_event_is_judged_as_if_all_control_memories_had_been_asked(seed):
    few, many = searched(sparse_world(seed, 1)), searched(sparse_world(seed, 1), AllAtOnce)
    assert few.removal.ids == many.removal.ids
    assert few.states["e000"].status == many.states["e000"].status


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_every_search_ends_with_a_verdict(seed, events):
    search = searched(sparse_world(seed, events))
    assert search.not_examined == []
    assert all(state.status != "open" for state in search.states.values())


def test_fewer_questions_are_asked():
    asked = {ControlMemories: 0, AllAtOnce: 0}
    for seed in range(8):
        for controls in asked:
            world = sparse_world(seed, 3)
            searched(world, controls)
            asked[controls] += len(world.asked)
    assert asked[ControlMemories] < 0.97 * asked[AllAtOnce]


@pytest.mark.parametrize("controls", [ControlMemories, AllAtOnce])
def test_a_group_is_not_screened_out_by_the_first_control_memory_alone(controls):
    # The first controls bring 0.9 nats, the last none; memory 4 is in one group with one that takes 0.9 away.
    row = [9.0, 0.0, 0.0, 0.0, 2.5, -0.9, *[0.0] * 11, 0.9, 0.9, 0.0]
    search = searched(GradedWorld({"query 0": [row]}, harmful_above=6, k=12), controls)
    assert search.removal.ids == {"m000", "m004"}


@pytest.mark.parametrize("controls", [ControlMemories, AllAtOnce])
def test_nothing_is_put_back_by_the_first_control_memory_alone(controls):
    # Memory 1 adds 0.3 nats to what the first control memory brings at the event that is cleared, and 1.2 to the last.
    world = HalfRepairableWorld(
        {"query 0": [4.0, 1.2, 0.9, 0.9, 0.9, 0.9, 0.9, 0.0], "query 1": [0.5, 3.0, 3.0, 0, 0, 0, 0, 0]}
    )
    assert searched(world, controls).removal.ids == {"m000", "m001"}


def test_control_memories_wanted_at_a_cleared_event_come_to_an_end():
    gains = {
        "query 0": [[0, 0, 5, 0, 0, 0, 0, 0, 0, -4, 0, 0], [2.1, *[0] * 11]],
        "query 1": [[0, 0, 2.5, 0, 0, 1.7, -1, 0, 0, 0, -4, 0], [0] * 12],
    }
    orders = {"query 0": list(range(12)), "query 1": [0, 2, 5, 6, 11, 7, 1, 9, 4, 10, 8, 3]}
    search = searched(GradedWorld(gains, orders=orders, form=5, harmful_above=4))
    assert [state.status for state in search.states.values()] == ["contributed", "cleared"]


def test_rounds_that_ask_nothing_are_bounded_too(monkeypatch):
    world = sparse_world(1, 2)
    monkeypatch.setattr(SetSearch, "_advance", lambda _search: None)  # a phase that asks nothing and never ends
    search = SetSearch(
        world.memory, [make_event(0, query="query 0")], SearchSettings(attribution_nats=2.0, max_rounds=5)
    )
    search._state = replace(search._state, phase="reference")
    assert search.plan() == ()
    assert search.not_examined == ["event e000: no end after 5 rounds"]
