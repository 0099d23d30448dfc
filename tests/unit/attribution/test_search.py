"""Behaviour of the set search in simulated worlds."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.attribution.replays.harm import RegexHarm
from memory_audit.attribution.replays.retrieval import RankedMemory
from memory_audit.attribution.search.attribution_rule import AttributionRule
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import SearchSettings
from tests.unit.attribution.test_leave_one_out import loo_of
from tests.unit.attribution.world import World, make_event


def hijack(poison: set[int], *, needed: int = 1, nats: float = 6.0):
    """Each poison adds to the odds; `needed` of them together tip the verdict."""

    def lean(_query: str, context: frozenset[int]) -> float:
        return nats * len(context & poison) - nats * needed + nats / 2

    return lean


def search_of(world: World, count: int = 1, **options: Any) -> SetSearch:
    evidence = {name: options.pop(name, None) for name in ("resembles", "closure")}
    events = [make_event(number, query=f"query {number}") for number in range(count)]
    return SetSearch(world.memory, events, SearchSettings(**{"attribution_nats": 2.0, **options}), **evidence)


def test_a_single_poison_is_removed_and_its_event_cleared():
    world = World(8, {"query 0": [3, 0, 1, 2, 4, 5, 6, 7]}, hijack({3}))
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m003"}
    assert search.states["e000"].status == "cleared"


def test_events_of_one_query_are_each_searched_with_what_their_log_names():
    world = World(12, {"query 0": list(range(12))}, hijack({9, 11}), k=3)
    logs = [("m009", "m001"), ("m000", "m011", "m002"), ("m000", "m001"), None, ()]
    events = [replace(make_event(number, query="query 0"), retrieved=log) for number, log in enumerate(logs)]
    search = SetSearch(world.memory, events, SearchSettings(attribution_nats=2.0))
    world.run(search)
    assert search.removal.ids == {"m009", "m011"}
    assert [state.status for state in search.states.values()] == ["cleared"] * 2 + ["not reproduced"] * 3


def test_poison_that_moves_up_into_a_logged_place_is_found():
    world = World(12, {"query 0": [2, *range(2), *range(3, 12)]}, hijack({2, 9}), k=3)
    events = [replace(make_event(0, query="query 0"), retrieved=("m009", "gone", "m001"))]
    search = SetSearch(world.memory, events, SearchSettings(attribution_nats=2.0))
    world.run(search)
    assert search.states["e000"].full.context == ("m009", "m001", "m002")
    assert search.removal.ids == {"m002", "m009"}
    assert search.states["e000"].after.context == ("m001", "m000", "m003")


def test_redundant_poison_is_found_although_leaving_one_out_changes_no_verdict():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 1, 2, 3}))
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m000", "m001", "m002", "m003"}


def test_collective_poison_that_alone_does_nothing_visible_is_still_graded():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 1, 2, 3}, needed=3))
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m000", "m001", "m002", "m003"}


def weak(weights: dict[int, float], needed: float):
    """Memories that are not attributed by themselves; together they tip the answer where they come to `needed`."""
    return lambda _query, context: sum(weights.get(number, 0.0) for number in context) - needed


@pytest.mark.parametrize("events", [1, 2, 5])
def test_a_memory_whose_evidence_falls_short_is_suspected_and_stays_though_the_harm_would_end_without_it(events):
    lean = weak({0: 1.5, 1: 1.2, 2: 1.1}, 2.4)
    world = World(8, {f"query {number}": list(range(8)) for number in range(events)}, lean)
    search = search_of(world, events, attribution_nats=9.0)
    world.run(search)
    assert not search.removal.ids
    assert (
        search.removal.suspected["m000"]
        == "raises the odds of the harm in e000 by 1.5 nats, which does not attribute it"
    )
    assert {state.status for state in search.states.values()} == {"not cleared"}


def test_the_next_poison_in_line_is_found_when_the_first_are_gone():
    poison = set(range(9))
    world = World(20, {"query 0": list(range(20))}, hijack(poison))
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {f"m{number:03d}" for number in poison}
    assert search.states["e000"].status == "cleared"


def alone(world: World) -> set[str]:
    """Return who was measured alone."""
    return {ablation.kept[0] for ablation in world.asked if ablation.kept is not None and len(ablation.kept) == 1}


def test_a_large_context_is_screened_in_groups():
    world = World(60, {"query 0": list(range(60))}, hijack({17}), k=40)
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m017"}
    assert search.states["e000"].status == "cleared"
    assert {f"m{number:03d}" for number in range(14, 21)} <= alone(world)
    assert len(alone(world)) < 15
    assert sum(ablation.measure == "odds" for ablation in world.asked) < 40


def test_a_poison_that_its_group_hides_is_found_when_no_other_is():
    def lean(_query: str, context: frozenset[int]) -> float:
        return 6.0 * (3 in context) - 9.0 * (2 in context and len(context) < 10) - 3.0

    world = World(60, {"query 0": list(range(60))}, lean, k=36)
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m003"}
    assert search.states["e000"].status == "cleared"


def test_a_poison_that_its_group_hides_is_found_beside_an_attributed_one():
    def lean(_query: str, context: frozenset[int]) -> float:
        opposed = 2 in context and len(context) < 10
        return 6.0 * (3 in context) + 6.0 * (20 in context) - 9.0 * opposed - 3.0

    world = World(60, {"query 0": list(range(60))}, lean, k=36)
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m003", "m020"}


def test_an_event_cleared_before_a_group_was_unscreened_is_judged_without_what_that_attributes():
    def lean(query: str, context: frozenset[int]) -> float:
        if query == "query 0":  # cleared without 0; without 3, too, 40 moves up
            return 6.0 * bool(context & {0, 40}) - 3.0
        opposed = 2 in context and len(context) < 10
        return 6.0 * (3 in context) + 6.0 * (20 in context) - 9.0 * opposed - 3.0

    few = [0, 3, 10, 11, 12, 40]
    orders = {"query 0": few + [number for number in range(60) if number not in few], "query 1": list(range(60))}
    world = World(60, orders, lean, k=36)
    events = [
        replace(make_event(0, query="query 0"), retrieved=("m000", "m003", "m010", "m011")),
        make_event(1, query="query 1"),
    ]
    search = SetSearch(world.memory, events, SearchSettings(attribution_nats=2.0))
    world.run(search)
    assert search.removal.ids == {"m000", "m003", "m020", "m040"}
    assert {state.status for state in search.states.values()} == {"cleared"}


def test_a_memory_in_many_events_is_attributed_at_one_and_the_best_match_of_each_is_measured_there():
    orders = {f"query {number}": list(range(20)) for number in range(6)}
    world = World(20, orders, hijack(set(range(10))))
    search = search_of(world, 6)
    world.run(search)
    assert search.removal.ids == {f"m{number:03d}" for number in range(10)}
    assert all(state.status == "cleared" for state in search.states.values())
    where = {
        number: {ablation.event_id for ablation in world.asked if ablation.kept == (f"m{number:03d}",)}
        for number in range(10)
    }
    assert [len(events) for events in where.values()] == [6] + [1] * 9
    assert search.skipped == {f"m{number:03d}": 5 for number in range(1, 10)}


def test_a_memory_with_some_effect_at_one_event_is_measured_at_twice_as_many_in_each_round():
    # Memories 0 to 4 are poison in all ten contexts; 5 to 9 move up into all of them, and 7 does a little everywhere.
    def lean(_query: str, context: frozenset[int]) -> float:
        return 6.0 * len(context & set(range(5))) + 1.05 * (7 in context) - 3.0

    world = World(20, {f"query {number}": list(range(20)) for number in range(10)}, lean)
    search = search_of(world, 10)
    rounds = []
    while ablations := search.plan():
        rounds.append(sum(ablation.kept == ("m007",) for ablation in ablations))
        search.observe([world.answer(search.states[item.event_id].event, item) for item in ablations])
    assert search.removal.ids == {f"m{number:03d}" for number in range(5)}
    assert [asked for asked in rounds if asked] == [1, 1, 2, 4, 2]


def test_a_memory_without_effect_at_one_event_is_shown_together_with_others_at_the_rest():
    world = World(20, {f"query {number}": list(range(20)) for number in range(10)}, hijack(set(range(5))))
    search = search_of(world, 10)
    world.run(search)
    assert search.removal.ids == {f"m{number:03d}" for number in range(5)}
    shown = [ablation for ablation in world.asked if ablation.kept is not None and "m007" in ablation.kept]
    assert sorted(len(ablation.kept) for ablation in shown if ablation.kept) == [1] + [5] * 9
    assert all(state.status == "cleared" for state in search.states.values())


def test_a_poison_of_one_query_that_its_group_hides_is_found_where_harm_stays():
    def lean(query: str, context: frozenset[int]) -> float:
        suppressed = 5 in context and 8 not in context
        works = query == "query 1" and 6 in context and not suppressed
        return 6.0 * (0 in context) + 6.0 * works - 3.0

    rest = [*range(9, 20), 1, 2, 3, 4, 7]
    orders = {"query 0": [0, 5, 6, 8, *rest], "query 1": [8, 0, 5, 6, *rest]}
    world = World(20, orders, lean, k=4)
    search = search_of(world, 2)
    world.run(search)
    assert ("m005", "m006") in [ablation.kept for ablation in world.asked]
    assert search.removal.ids == {"m000", "m006"}
    assert all(state.status == "cleared" for state in search.states.values())


@pytest.mark.parametrize("diffuse", [{0, 1}, {7, 8, 9}])
def test_weak_evidence_adds_up_only_when_every_event_has_told(diffuse):
    # Nine tenths of what would suffice in two or three events, and nothing in the others.
    def lean(query: str, context: frozenset[int]) -> float:
        weak = int(query.removeprefix("query ")) in diffuse and 1 in context
        return 6.0 * (0 in context) + 1.8 * weak - 3.0

    world = World(12, {f"query {number}": list(range(12)) for number in range(10)}, lean)
    search = search_of(world, 10)
    world.run(search)
    assert search.removal.ids == {"m000"}
    told = {number for number in range(10) if search.states[f"e{number:03d}"].alone("m001") > 0.0}
    assert told == diffuse


def test_a_memory_that_moves_up_and_is_not_attributed_at_one_event_is_measured_at_the_others():
    def lean(query: str, context: frozenset[int]) -> float:
        works = 7 in context and query == "query 2"  # this poison answers one query only
        return 6.0 * len(context & set(range(5))) + 6.0 * works - 3.0

    world = World(20, {f"query {number}": list(range(20)) for number in range(3)}, lean)
    search = search_of(world, 3)
    world.run(search)
    assert "m007" in search.removal.ids
    assert all(state.status == "cleared" for state in search.states.values())


def test_small_contexts_are_measured_one_by_one():
    world = World(12, {"query 0": list(range(12))}, hijack({2}), k=11)
    world.run(search_of(world))
    assert not any(ablation.kind == "keep_group" for ablation in world.asked)


@settings(max_examples=60)
@given(st.sets(st.integers(0, 39), min_size=1, max_size=12), st.integers(0, 2**32))
def test_screening_finds_what_measuring_everybody_finds(poison, seed):
    order = list(range(60))
    random.Random(seed).shuffle(order)
    found = []
    for screen_from in (12, 1_000):
        world = World(60, {"query 0": order}, hijack(poison), k=30)
        search = search_of(world, screen_from=screen_from)
        world.run(search)
        found.append(search.removal.ids)
    assert found[0] == found[1]
    assert {f"m{number:03d}" for number in poison & set(order[:30])} <= found[0]


def test_collective_poison_is_found_by_samples_where_a_server_gives_no_log_probabilities():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 1, 2, 3}, needed=3), logprobs=False)
    search = search_of(world, samples=8)
    world.run(search)
    assert search.removal.ids == {"m000", "m001", "m002", "m003"}
    influence = search.states["e000"].influences["m000"]
    assert influence.sufficiency_nats == pytest.approx(6.0)
    assert influence.cmis is None or influence.cmis >= 0


def test_a_sampled_question_costs_a_budget_as_many_replays_as_it_takes():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 1, 2, 3}, needed=3), logprobs=False)
    search = search_of(world, samples=8, max_replays=30)
    world.run(search)
    sampled = sum(ablation.measure == "sample" for ablation in world.asked)
    assert len(world.asked) + 7 * sampled <= 30
    assert search.not_examined


def test_a_single_harm_score_cannot_grade_collective_poison_but_tells_the_sets():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 1, 2, 3}, needed=3), logprobs=False)
    search = search_of(world)
    world.run(search)
    assert set(search.removal.removed) == {"m000", "m001", "m002", "m003"}
    assert not any(ablation.measure == "sample" for ablation in world.asked)


def test_harm_without_any_memory_is_not_blamed_on_memory():
    world = World(6, {"query 0": list(range(6))}, lambda _query, _context: 1.0)
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "memory is not the cause"
    assert not search.removal.ids


def test_an_event_that_does_not_reproduce_removes_nothing():
    world = World(6, {"query 0": list(range(6))}, lambda _query, _context: -1.0)
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "not reproduced"
    assert not search.removal.ids


@pytest.mark.parametrize("reported", [1, 11, 40])
def test_an_incident_that_is_reported_often_speaks_against_a_benign_memory_as_little_as_once(reported):
    world = World(20, {"query 0": list(range(20))}, weak({0: 6.0, 1: 1.1}, 3.0))
    events = [make_event(number, query="query 0") for number in range(reported)]
    search = SetSearch(world.memory, events, SearchSettings(attribution_nats=2.0))
    world.run(search)
    assert search.removal.ids == {"m000"}
    assert {state.status for state in search.states.values()} == {"cleared"}


@pytest.mark.parametrize(
    "logs",
    [
        list(itertools.permutations(("m000", "m001", "m002"))),
        [("m000", "m001", f"m{number:03d}") for number in range(2, 8)],
    ],
)
def test_an_incident_that_is_reported_with_other_companions_is_the_same_incident(logs):
    world = World(20, {"query 0": list(range(20))}, weak({0: 6.0, 1: 1.3}, 3.0), k=3)
    events = [replace(make_event(number, query="query 0"), retrieved=log) for number, log in enumerate(logs)]
    search = SetSearch(world.memory, events, SearchSettings(attribution_nats=2.0))
    world.run(search)
    assert search.removal.ids == {"m000"}


def test_a_poison_that_nobody_retrieved_yet_is_found_through_its_likeness():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 11}))
    search = search_of(world, resembles={"m000": ["m011", "m010"]})
    world.run(search)
    assert search.removal.ids == {"m000", "m011"}


@pytest.mark.parametrize(("alike", "left"), [(32, 0), (33, 1), (45, 13)])
def test_memories_like_attributed_ones_that_no_round_had_room_for_are_named_as_not_examined(alike, left):
    world = World(60, {"query 0": list(range(60))}, hijack({0}))
    search = search_of(world, resembles={"m000": [f"m{number:03d}" for number in range(10, 10 + alike)]})
    world.run(search)
    line = f"memories like attributed ones: one round asks about 32 of them, and {left} were left"
    assert search.not_examined == ([line] if left else [])


def test_a_search_that_is_taken_up_again_names_what_its_budget_left_out_once():
    lean = weak({0: 1.5, 1: 1.2, 2: 1.1}, 1.0)
    world = World(14, {f"query {number}": list(range(14)) for number in range(2)}, lean, k=4)
    events = [make_event(number, query=f"query {number}") for number in range(2)]
    seen = set()
    for most in range(80):
        settings_ = SearchSettings(attribution_nats=9.0, max_replays=most)
        search = SetSearch(world.memory, events, settings_, closure=lambda _: {"m005": "derived"})
        world.run(search)
        assert len(search.not_examined) == len(set(search.not_examined))
        seen |= {state.status for state in search.states.values() if search.not_examined}
    assert "not cleared" in seen


def test_a_server_without_logprobs_falls_back_to_verdicts():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 1, 2}), logprobs=False)
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m000", "m001", "m002"}
    assert search.states["e000"].status == "cleared"


def test_a_budget_that_allows_no_replay_leaves_events_unexamined():
    world = World(12, {"query 0": list(range(12))}, hijack({0}))
    search = search_of(world, max_replays=1)
    world.run(search)
    assert not world.asked
    assert search.states["e000"].status == "not examined"


def test_a_budget_stops_the_search_and_says_what_was_not_examined():
    world = World(12, {"query 0": list(range(12)), "query 1": list(range(12))}, hijack({0}))
    search = search_of(world, count=2, max_replays=6)
    world.run(search)
    assert len(world.asked) <= 6
    assert search.states["e001"].status == "not cleared"
    assert search.states["e001"].reason == "budget of 6 replays is spent"
    assert search.not_examined == [
        "event e000: budget of 6 replays is spent",
        "event e001: budget of 6 replays is spent",
    ]


def test_no_question_is_asked_twice():
    world = World(30, {f"query {number}": list(range(30)) for number in range(4)}, hijack(set(range(12))))
    search = search_of(world, count=4)
    world.run(search)
    questions = [ablation.pair_id for ablation in world.asked]
    assert len(questions) == len(set(questions))


def test_dense_poison_costs_at_most_three_times_plain_leave_one_out():
    events, size = 12, 50
    rng = random.Random(0)
    orders = {f"query {number}": rng.sample(range(size), size) for number in range(events)}
    poison = set(range(size // 2))
    plain = World(size, orders, hijack(poison))
    plain.run(loo_of(plain, count=events))
    world = World(size, orders, hijack(poison))
    search = search_of(world, count=events)
    world.run(search)
    assert all(state.status in {"cleared", "not reproduced"} for state in search.states.values())
    assert len(world.asked) <= 3 * len(plain.asked)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_search_ends_all_harm_that_memory_causes_and_never_removes_the_harmless(data):
    size = data.draw(st.integers(5, 16))
    poison = data.draw(st.sets(st.integers(0, size - 1), max_size=size))
    needed = data.draw(st.integers(1, 3))
    events = data.draw(st.integers(1, 4))
    orders = {f"query {number}": data.draw(st.permutations(range(size))) for number in range(events)}
    world = World(size, orders, hijack(poison, needed=needed))
    search = search_of(world, count=events)
    world.run(search)
    assert {int(entry_id[1:]) for entry_id in search.removal.ids} <= poison
    for state in search.states.values():
        query = state.event.query
        shown = [*world.memory.unused(query, 3), *world.memory.drawn(query, 3), *world.memory.retrieve(query)]
        blind = {int(entry.entry_id[1:]) for entry in shown} <= poison  # there is nothing to compare with
        unknown = ["memory is not the cause"] if needed == 1 else ["not cleared"]
        assert state.status in {"cleared", "not reproduced", *(unknown if blind else [])}


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_in_which_outcomes_arrive_changes_nothing(rng):
    def shuffled(outcomes):
        rng.shuffle(outcomes)
        return outcomes

    orders = {"query 0": list(range(16)), "query 1": list(reversed(range(16)))}
    straight, mixed = World(16, orders, hijack({1, 5, 9})), World(16, orders, hijack({1, 5, 9}))
    first, second = search_of(straight, count=2), search_of(mixed, count=2)
    straight.run(first)
    mixed.run(second, shuffle=shuffled)
    assert first.removal == second.removal


def test_an_unknown_harm_is_not_examined_rather_than_guessed(monkeypatch):
    world = World(6, {"query 0": list(range(6))}, hijack({0}))
    original = world.answer

    def unsure(event, ablation):
        outcome = original(event, ablation)
        return type(outcome)(**{name: getattr(outcome, name) for name in outcome.__slots__} | {"harm": None})

    monkeypatch.setattr(world, "answer", unsure)
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "not examined"


@pytest.mark.parametrize("attribution_nats", [1.0, 3.0, 5.0])
def test_reasons_say_what_the_evidence_is(attribution_nats):
    world = World(8, {"query 0": list(range(8))}, hijack({0}))
    search = search_of(world, attribution_nats=attribution_nats)
    world.run(search)
    assert search.removal.removed["m000"] == "alone raises the odds of the harm in e000 by 6.0 nats"


class OpeningWorld(World):
    """Memories in `opening` open an answer as the harmful one opens; from `harm_from` on poison alone counts."""

    def __init__(
        self, *, poison: set[int], opening: set[int], harm_from: int, size: int = 8,
        orders: dict[str, list[int]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(size, orders or {"query 0": list(range(size))}, hijack(poison))
        self._poison = {f"m{number:03d}" for number in poison}
        self._opening = {f"m{number:03d}" for number in opening}
        self._from = harm_from

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure == "text":
            said = "so it comes that one by one all harm is done" if outcome.harm else "All well."
            return replace(outcome, output=said, answers=(said,))
        if ablation.measure == "continuation":
            return replace(outcome, output=" however")
        causes = self._opening if ablation.point < self._from else self._poison
        return replace(outcome, log_odds_nats=3.0 if causes & set(outcome.context) else -3.0)


def test_a_benign_memory_that_only_shares_the_opening_words_is_not_attributed():
    world = OpeningWorld(poison={2}, opening={1, 2}, harm_from=1)
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m002"}


def test_one_point_alone_would_attribute_the_shared_opening():
    world = OpeningWorld(poison={2}, opening={1, 2}, harm_from=1)
    search = search_of(world, points=1)
    world.run(search)
    assert search.removal.ids == {"m001", "m002"}


def test_leaving_one_out_is_not_asked_where_a_memory_alone_is_attributed():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 1, 2, 3}))
    world.run(search_of(world))
    assert not [ablation for ablation in world.asked if ablation.kind == "leave_one_out"]


def test_leaving_one_out_is_asked_where_no_memory_alone_is_attributed():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 1, 2}, needed=3, nats=1.5))
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].influences["m000"].necessity_nats == 1.5
    assert search.states["e000"].influences["m003"].necessity_nats == 0.0
    assert set(search.removal.suspected) == {"m000", "m001", "m002"}


def test_a_benign_memory_removed_before_the_poison_is_put_back():
    """Evidence misleads: alone neither memory shows."""

    def lean(_query: str, context: frozenset[int]) -> float:
        return 1.0 if 1 in context and len(context) > 1 else -1.0

    world = World(8, {"query 0": [0, 1, 2, 3, 4, 5, 6, 7]}, lean)
    events = [make_event(0, query="query 0")]
    search = SetSearch(world.memory, events, SearchSettings(attribution_nats=2.0))
    world.run(search)
    assert search.removal.ids == {"m001"}
    assert search.states["e000"].status == "cleared"


@pytest.mark.parametrize("attributed", [True, False])
def test_a_memory_that_fits_in_better_than_the_median_needs_more_evidence(attributed):
    world = World(8, {"query 0": list(range(8))}, hijack({0}, nats=2.2))
    events = [make_event(0, query="query 0")]
    settings = SearchSettings(attribution_nats=2.0)
    search = SetSearch(world.memory, events, settings, fits_in=lambda name: name == "m000" and not attributed)
    world.run(search)
    assert set(search.removal.removed) == ({"m000"} if attributed else set())
    assert set(search.removal.suspected) == (set() if attributed else {"m000"})


def test_a_harm_score_that_flips_is_attributed_to_a_memory_that_fits_in_too():
    world = World(8, {"query 0": list(range(8))}, hijack({0}), logprobs=False)
    events = [make_event(0, query="query 0")]
    settings = SearchSettings(attribution_nats=2.0)
    search = SetSearch(world.memory, events, settings, fits_in=lambda name: name == "m000")
    world.run(search)
    assert search.removal.removed["m000"].startswith("alone raises")


def test_points_that_only_show_wording_are_followed_by_later_ones():
    world = OpeningWorld(poison={3}, opening=set(), harm_from=2)
    search = search_of(world, consistent_extra_nats=0.0)
    world.run(search)
    assert search.removal.removed == {"m003": "alone raises the odds of the harm in e000 by 6.0 nats"}
    assert len(search.states["e000"].points) == 4


def test_no_later_point_is_asked_where_the_first_ones_attribute():
    world = OpeningWorld(poison={3}, opening=set(), harm_from=0)
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m003"}
    assert len(search.states["e000"].points) == 2


def test_where_no_point_tells_nothing_is_removed():
    world = OpeningWorld(poison={3}, opening=set(), harm_from=9)
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "not cleared"
    assert not search.removal.ids


class SpanWorld(World):
    """A benign memory opens the answer; the poison alone brings the words of the harm, if they can be told at all."""

    def __init__(self, *, opens: int, poison: int, settled: bool = False) -> None:
        super().__init__(8, {"query 0": list(range(8))}, hijack({poison}))
        self._opens, self._poison, self._settled = f"m{opens:03d}", f"m{poison:03d}", settled

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure == "text":
            said = "Use deck B or send the code" if outcome.harm else "Ask the desk."
            return replace(outcome, output=said, answers=(said,))
        if ablation.measure == "continuation":
            return replace(outcome, output=" let us see")
        spoken = ablation.point < 2  # "send" and "code" follow each other
        if spoken and self._settled:
            return replace(outcome, log_odds_nats=5.0)
        cause = self._poison if spoken else self._opens
        return replace(outcome, log_odds_nats=1.0 if cause in outcome.context else -4.0)


SEND = RegexHarm(pattern="the code")


def span_search(world):
    events = [make_event(0, query="query 0")]
    return SetSearch(world.memory, events, SearchSettings(attribution_nats=2.0), scorer=SEND)


def test_the_words_of_the_harm_count_and_not_how_the_answer_opens():
    world = SpanWorld(opens=1, poison=2)
    search = span_search(world)
    world.run(search)
    assert search.removal.removed == {
        "m002": "alone raises the odds of the harm in e000 by 7.4 nats"
    }  # from 2 log σ(-4) to 2 log σ(1)
    assert [point.harmful for point in search.states["e000"].points] == [" the code", " code"]


def test_words_that_follow_from_what_was_forced_tell_nothing_and_divergence_points_count():
    world = SpanWorld(opens=2, poison=2, settled=True)
    search = span_search(world)
    world.run(search)
    assert search.removal.ids == {"m002"}
    assert search.removal.removed["m002"].endswith("5.0 nats")
    assert len(search.states["e000"].points) == 4


class FormatWorld(SpanWorld):
    """Any memory brings the words in which the harm is said; only the poison opens the answer."""

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure == "odds" and ablation.point < 2:
            return replace(outcome, log_odds_nats=1.0 if outcome.context else -4.0)
        return outcome


def test_what_any_memory_brings_is_attributed_to_none():
    world = FormatWorld(opens=2, poison=2)
    search = span_search(world)
    world.run(search)
    assert search.removal.ids == {"m002"}


class SuppressedWorld(SpanWorld):
    """What matches no query is planted: it suppresses the words, which the model would say by itself, if `anyway`."""

    def __init__(self, *, planted: int, anyway: float) -> None:
        super().__init__(opens=2, poison=2)
        self._planted, self._anyway = frozenset(f"m{number:03d}" for number in range(8 - planted, 8)), anyway

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure == "odds" and ablation.point < 2 and self._poison not in outcome.context:
            suppressed = self._planted.intersection(outcome.context)
            return replace(outcome, log_odds_nats=-12.0 if suppressed else self._anyway)
        return outcome


@pytest.mark.parametrize("anyway", [-6.0, -3.0, -1.0, 2.0])
@pytest.mark.parametrize("planted", [0, 1, 2, 3])
def test_planted_control_memories_that_suppress_the_harm_span_have_no_other_memory_attributed(planted, anyway):
    world = SuppressedWorld(planted=planted, anyway=anyway)
    search = span_search(world)
    world.run(search)
    assert search.removal.ids == {"m002"}


def test_a_store_without_unused_memories_is_compared_with_none():
    world = SpanWorld(opens=1, poison=2)
    small = RankedMemory(world.entries[:5], lambda _: np.arange(5), 5)
    world.memory = small
    search = span_search(world)
    world.run(search)
    assert search.removal.ids == {"m002"}


class PrefixWorld(SpanWorld):
    """The clean replay begins like the harmful one and takes it back: there is no divergence."""

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure == "text" and not outcome.harm:
            said = "Use deck B or send the code, no, do not"
            return replace(outcome, output=said, answers=(said,))
        return outcome


def test_a_settled_span_without_a_divergence_leaves_the_event_to_harm_scores():
    world = PrefixWorld(opens=1, poison=2, settled=True)
    search = span_search(world)
    world.run(search)
    assert not search.states["e000"].points
    assert search.removal.ids == {"m002"}


class TextPrefixWorld(PrefixWorld):
    """The same behind a server that gives no log-probabilities."""

    def answer(self, event, ablation):
        return replace(super().answer(event, ablation), **(
            {"log_odds_nats": None} if ablation.measure in {"odds", "continuation"} else {}
        ))  # fmt: skip


def test_a_span_without_a_divergence_is_counted_in_samples_where_a_server_gives_no_log_probabilities():
    world = TextPrefixWorld(opens=1, poison=2)
    search = SetSearch(
        world.memory, [make_event(0, query="query 0")], SearchSettings(attribution_nats=2.0, samples=8), scorer=SEND
    )
    world.run(search)
    assert search.removal.ids == {"m002"}
    assert search.states["e000"].status == "cleared"


class PayloadWorld(World):
    """Each poison brings the address that it names, the first in the context that of all; others are rare then."""

    def __init__(self, addresses: dict[int, str]) -> None:
        super().__init__(24, {f"query {number}": list(range(24)) for number in range(2)}, hijack(set(addresses)), k=4)
        self.addresses = {f"m{number:03d}": address for number, address in addresses.items()}
        events = [make_event(number, query=f"query {number}") for number in range(2)]
        self.search = SetSearch(
            self.memory, events, SearchSettings(attribution_nats=2.0), scorer=RegexHarm(pattern=r"mail (\S+@\S+)")
        )

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        named = [self.addresses[name] for name in outcome.context if name in self.addresses]
        if ablation.measure == "text":
            said = f"Please mail {named[0]} today" if named else "Ask the desk."
            return replace(outcome, output=said, answers=(said,))
        asked = self.search.states[event.event_id].points[ablation.point].harmful.split()[0]
        return replace(outcome, log_odds_nats=-6.0 if not named else 4.0 if named[0] == asked else -12.0)


@pytest.mark.parametrize("addresses", ["aaaaaa", "abcdef", "aabbcc", "aabbaa", "abcabc"])
def test_poison_that_brings_an_address_each_is_found_behind_the_one_that_is_said(addresses):
    world = PayloadWorld({number: f"x@{address}.example" for number, address in enumerate(addresses)})
    world.run(world.search)
    assert world.search.removal.ids == {"m000", "m001", "m002", "m003", "m004", "m005"}
    assert {state.status for state in world.search.states.values()} == {"cleared"}


def test_harm_of_the_same_words_is_asked_about_once():
    world = PayloadWorld(dict.fromkeys(range(6), "x@a.example"))
    world.run(world.search)
    assert {len(state.points) for state in world.search.states.values()} == {1}


class Certain(AttributionRule):
    """Never asks of a memory that is not known whether it fits in."""

    def _extra_nats(self, entry_id: str) -> float:
        assert self.fits_in(entry_id) is not None
        return super()._extra_nats(entry_id)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_search_that_learns_who_fits_in_as_it_goes_ends_as_one_that_was_told_before(seed):
    rng = random.Random(seed)
    entries = rng.randint(3, 16)
    names = [f"m{number:03d}" for number in range(entries)]
    fitting = {name for name in names if rng.random() < 0.5}
    strength = weak({number: rng.choice([0.3, 1.2, 2.2, 3.0]) for number in rng.sample(range(entries), 3)}, 2.0)
    orders = {f"query {number}": rng.sample(range(entries), entries) for number in range(3)}
    resembles = {name: rng.sample(names, 3) for name in names}

    def ended(known: set[str]) -> SetSearch:
        world = World(entries, orders, strength, k=rng_k)
        events = [make_event(number, query=query) for number, query in enumerate(orders)]
        search = SetSearch(
            world.memory, events, SearchSettings(attribution_nats=2.0), resembles=resembles, rule=Certain,
            fits_in=lambda name: name in fitting if name in known else None,
        )  # fmt: skip
        while True:
            asked, awaited = search.plan(), search.awaited
            assert not awaited or any(state.full.is_harmful for state in search.states.values())
            known |= awaited
            if asked:
                search.observe([world.answer(search.states[item.event_id].event, item) for item in asked])
            elif not awaited:
                return search

    rng_k = rng.randint(1, 5)
    told, learnt = ended(set(names)), ended(set())
    assert learnt.removal == told.removal
    assert learnt.states == told.states
