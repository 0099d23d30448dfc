"""S as the smallest prefix of a ranking that ends the harm."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from memory_audit.attribution.prefix import PrefixChoice
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.state import SearchSettings
from tests.unit.attribution.world import World, make_event


def choose(size, poison, ranking, *, limit=None, unknown=False):
    """Attribute plainly, then cut the ranking; the world says what the model would do."""
    orders = {"query 0": list(range(size))}
    world = World(size, orders, lambda _query, context: 1.0 if context & poison else -1.0)
    search = SetSearch(
        world.memory, [make_event(0, query="query 0")], SearchSettings(attribution_nats=2.0, attribution="loo")
    )
    world.run(search)
    choice = PrefixChoice(
        [f"m{number:03d}" for number in ranking], search.states.values(), limit=size if limit is None else limit
    )
    rounds = 0
    while ablations := choice.plan():
        outcomes = [world.answer(search.states[item.event_id].event, item) for item in ablations]
        if unknown:
            outcomes = [dataclasses.replace(item, harm=None) for item in outcomes]
        choice.observe(outcomes)
        rounds += 1
    return choice.removed, rounds, search


@given(st.integers(6, 16), st.integers(1, 6))
def test_a_perfect_ranking_is_cut_behind_the_last_poison(size, count):
    ranking = list(range(size))
    removed, rounds, _ = choose(size, set(range(count)), ranking)
    assert removed == tuple(f"m{number:03d}" for number in range(count))
    assert rounds <= 2 * count.bit_length() + 1


@given(st.permutations(range(8)), st.sets(st.integers(0, 7), min_size=1, max_size=4))
def test_what_is_removed_ends_the_harm_and_one_less_does_not(ranking, poison):
    removed, _, search = choose(8, poison, ranking)
    if search.states["e000"].status != "open":
        assert removed == ()
        return
    last = max(ranking.index(number) for number in poison)
    retrieved_after = [number for number in range(8) if f"m{number:03d}" not in removed][:5]
    assert not poison & set(retrieved_after)
    assert len(removed) <= last + 1


def test_nothing_is_removed_where_no_prefix_within_the_limit_ends_the_harm():
    assert choose(10, {9, 0}, [*range(1, 10), 0], limit=4)[0] == ()
    assert choose(10, {0}, list(range(10)), limit=0)[0] == ()


def test_an_event_that_is_not_open_is_not_replayed():
    assert choose(6, set(), list(range(6)))[:2] == ((), 0)


def test_a_harm_that_cannot_be_judged_is_not_taken_as_gone():
    assert choose(6, {0}, list(range(6)))[0] == ("m000",)
    assert choose(6, {0}, list(range(6)), unknown=True)[0] == ()
