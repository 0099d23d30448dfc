"""Plain leave-one-out, and S as the smallest prefix of a ranking that ends the harm."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.leave_one_out import LeaveOneOut
from tests.unit.attribution.world import World, make_event


def hijack(poison):
    return lambda _query, context: 3.0 if context & poison else -3.0


def loo_of(world: World, count: int = 1, **options: Any) -> LeaveOneOut:
    events = [make_event(number, query=f"query {number}") for number in range(count)]
    return LeaveOneOut(world.memory, events, **{"flip_nats": 2.5, **options})


def choose(size, poison, ranking, *, unknown=False):
    """Attribute plainly, then cut the ranking; the world says what the model would do."""
    world = World(size, {"query 0": list(range(size))}, hijack(poison))
    found = loo_of(world, rank=lambda _influence: [f"m{number:03d}" for number in ranking])
    rounds = 0
    while ablations := found.plan():
        choosing = found.phase == "choosing"
        outcomes = [world.answer(found.states[item.event_id].event, item) for item in ablations]
        if unknown and choosing:
            outcomes = [dataclasses.replace(item, harm=None) for item in outcomes]
        found.observe(outcomes)
        rounds += choosing
    return tuple(found.removal.attributed), rounds, found


def test_no_samples_are_asked_for():
    world = World(12, {"query 0": list(range(12))}, hijack({2}), logprobs=False)
    world.run(loo_of(world))
    assert {ablation.measure for ablation in world.asked} == {"text"}


def test_nothing_is_seen_when_poison_is_redundant():
    world = World(12, {"query 0": list(range(12))}, hijack({0, 1, 2, 3}))
    found = loo_of(world)
    world.run(found)
    assert [influence.cmis for influence in found.states["e000"].influences.values()] == [0.0] * 5
    assert dict(found.influence) == dict.fromkeys((f"m{number:03d}" for number in range(5)), 0.0)


def test_the_only_cause_is_credited():
    world = World(12, {"query 0": list(range(12))}, hijack({2}))
    found = loo_of(world)
    world.run(found)
    assert found.states["e000"].influences["m002"].cmis == 1.0
    assert found.states["e000"].influences["m002"].necessity_nats == 2.5
    assert found.states["e000"].influences["m001"].cmis == 0.0


def test_a_budget_stops_it_and_says_what_was_not_examined():
    world = World(12, {"query 0": list(range(12))}, hijack({0}))
    found = loo_of(world, max_replays=4, rank=lambda _influence: ["m000"])
    world.run(found)
    assert len(world.asked) == 2
    assert (found.states["e000"].status, found.states["e000"].reason) == ("not cleared", "budget of 4 replays is spent")
    assert found.not_examined == ["event e000: budget of 4 replays is spent"]
    assert not found.removal.removed


def test_a_budget_does_not_count_the_choice_of_the_set():
    world = World(12, {"query 0": list(range(12))}, hijack({0}))
    found = loo_of(world, max_replays=7, rank=lambda influence: sorted(influence, key=lambda name: -influence[name]))
    world.run(found)
    assert (len(world.asked), found.not_examined) == (8, [])
    assert list(found.removal.attributed) == ["m000"]


def test_without_a_ranking_no_set_is_chosen():
    world = World(12, {"query 0": list(range(12))}, hijack({0}))
    found = loo_of(world)
    world.run(found)
    assert not found.removal.removed
    assert not any(ablation.kind == "removal" for ablation in world.asked)


@given(st.integers(12, 20), st.integers(1, 6))
def test_a_perfect_ranking_is_cut_behind_the_last_poison(size, count):
    removed, rounds, _ = choose(size, set(range(count)), list(range(size)))
    assert removed == tuple(f"m{number:03d}" for number in range(count))
    assert rounds <= 2 * count.bit_length() + 1


@given(st.permutations(range(8)), st.sets(st.integers(0, 7), min_size=1, max_size=4))
def test_what_is_removed_ends_the_harm_and_one_less_does_not(ranking, poison):
    removed, _, found = choose(8, poison, ranking)
    if found.states["e000"].status != "open" or not removed:
        assert removed == ()
        return
    last = max(ranking.index(number) for number in poison)
    retrieved_after = [number for number in range(8) if f"m{number:03d}" not in removed][:5]
    assert not poison & set(retrieved_after)
    assert len(removed) <= min(last + 1, 4)


def test_nothing_is_removed_where_no_prefix_within_half_of_the_ranking_ends_the_harm():
    assert choose(10, {9, 0}, [*range(1, 10), 0])[0] == ()
    assert choose(1, {0}, [0])[0] == ()


def test_an_event_that_is_not_open_is_not_replayed():
    assert choose(6, set(), list(range(6)))[:2] == ((), 0)


def test_a_harm_that_cannot_be_judged_is_not_taken_as_gone():
    assert choose(6, {0}, list(range(6)))[0] == ("m000",)
    assert choose(6, {0}, list(range(6)), unknown=True)[0] == ()
