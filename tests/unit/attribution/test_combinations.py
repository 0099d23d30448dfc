"""Sets of memories that bring the harm together where none does alone, in simulated worlds."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import SearchSettings
from tests.unit.attribution.world import World, make_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.events import Event

NATS = 6.0


def together(*sets: Iterable[int], of: int = 0) -> list[frozenset[int]]:
    """Return the smallest sets that bring the harm; with `of`, all parts of each that have so many members."""
    parts = (itertools.combinations(group, of) if of else [tuple(group)] for group in sets)
    return [frozenset(part) for group in parts for part in group]


def composed(sets: Sequence[frozenset[int]], priming: dict[int, float] | None = None):
    """Harm comes with any of the sets; memories that prime make it likelier, and never likely."""

    def lean(_query: str, context: frozenset[int]) -> float:
        primed = sum(nats for number, nats in (priming or {}).items() if number in context)
        return (NATS if any(part <= context for part in sets) else 0.0) - NATS / 2 + min(primed, NATS / 2 - 0.1)

    return lean


def searched(world: World, count: int = 1, **options: Any) -> SetSearch:
    events = [make_event(number, query=f"query {number}") for number in range(count)]
    search = SetSearch(world.memory, events, SearchSettings(**{"attribution_nats": 2.0, **options}))
    world.run(search)
    return search


def ids(numbers: Iterable[int]) -> set[str]:
    return {f"m{number:03d}" for number in numbers}


def store(
    sets: Sequence[frozenset[int]],
    *,
    k: int = 12,
    entries: int = 30,
    seed: int = 0,
    priming: dict[int, float] | None = None,
    logprobs: bool = True,
) -> World:
    """Make a world whose query retrieves the members of all sets, anywhere among benign memories."""
    draw = random.Random(seed)
    members = sorted(frozenset().union(*sets))
    others = [number for number in range(entries) if number not in members]
    draw.shuffle(others)
    retrieved = [*members, *others[: k - len(members)]]
    draw.shuffle(retrieved)
    order = [*retrieved, *others[k - len(members) :]]
    return World(entries, {"query 0": order}, composed(sets, priming), k=k, logprobs=logprobs)


KINDS = {
    "2 of 2": together({1, 2}),
    "2 of 3": together({1, 2, 3}, of=2),
    "3 of 3": together({1, 2, 3}),
    "3 of 4": together({1, 2, 3, 4}, of=3),
    "one half in two wordings": together({1, 3}, {2, 3}),
}


@pytest.mark.parametrize("logprobs", [True, False])
@pytest.mark.parametrize("k", [5, 12, 30])
@pytest.mark.parametrize("kind", KINDS)
def test_a_set_none_of_which_does_it_alone_is_named_whole_among_benign_neighbours(kind, k, logprobs):
    sets = KINDS[kind]
    world = store(sets, k=k, entries=40, logprobs=logprobs)
    search = searched(world)
    assert search.removal.ids == ids(frozenset().union(*sets))
    assert search.states["e000"].status == "cleared"


@pytest.mark.parametrize("kind", ["2 of 2", "2 of 3", "3 of 3"])
def test_a_set_costs_at_most_three_times_what_leaving_out_each_memory_costs(kind):
    for seed in range(10):
        world = store(KINDS[kind], k=18, entries=40, seed=seed)
        searched(world)
        assert len(world.asked) <= 3 * (18 + 2)


@pytest.mark.parametrize(("kind", "count"), [("2 of 3", "2 of 3"), ("3 of 3", "3 of 3"), ("2 of 2", "2 of 2")])
def test_all_members_of_a_set_have_one_reason_that_names_them_and_says_how_many_it_takes(kind, count):
    (reason,) = set(searched(store(KINDS[kind])).removal.removed.values())
    what, _, named = reason.partition(": ")
    assert what == f"{count} together raise the odds of the harm in e000 by 6.0 nats, none alone"
    assert set(named.split(", ")) == ids(frozenset().union(*KINDS[kind]))


def test_a_set_that_only_whole_answers_tell_has_a_reason_without_a_figure():
    (reason,) = set(searched(store(KINDS["2 of 2"], logprobs=False)).removal.removed.values())
    assert reason.startswith("2 of 2 together bring the harm in e000, none alone: ")


def test_a_set_is_found_beside_redundant_plain_poison():
    sets = together({1, 2, 3}, of=2) + together({4}, {5})
    search = searched(store(sets))
    assert search.removal.ids == ids({1, 2, 3, 4, 5})
    assert search.states["e000"].status == "cleared"


def test_two_sets_in_one_context_are_both_found():
    search = searched(store(together({1, 2}, {3, 4, 5})))
    assert search.removal.ids == ids({1, 2, 3, 4, 5})


@pytest.mark.parametrize("below", [{3}, {2, 3}])
def test_a_member_that_moves_up_when_others_are_gone_is_found(below):
    sets = together({1, 2, 3, 4}, of=2)
    shown = [number for number in (1, 2, 3, 4) if number not in below]
    order = [*shown, 10, 11, 12, 13, *sorted(below), 20, *range(21, 30), 0, *range(5, 10), *range(14, 20)]
    world = World(30, {"query 0": order}, composed(sets), k=len(shown) + 4)
    search = searched(world)
    assert search.removal.ids == ids({1, 2, 3, 4})


def test_a_memory_that_primes_the_topic_completes_no_set():
    priming = dict.fromkeys(range(5, 12), 0.9)
    search = searched(store(KINDS["2 of 3"], k=14, priming=priming))
    assert search.removal.ids == ids({1, 2, 3})


def test_a_memory_that_only_tips_a_set_over_is_no_member():
    # Without the benign memory 5 the two raise the odds by 5.5 nats, to just below even.
    def lean(_query: str, context: frozenset[int]) -> float:
        return 5.5 * ({1, 2} <= context) + 0.8 * (5 in context) - 6.0

    world = World(30, {"query 0": list(range(30))}, lean, k=12)
    assert set(searched(world).removal.ids) == ids({1, 2})


def test_memories_that_bring_no_more_than_their_topic_does_are_no_set():
    class TopicWorld(World):
        def answer(self, event: Event, ablation: Ablation) -> Outcome:
            outcome = super().answer(event, ablation)
            return replace(outcome, log_odds_nats=2.5) if ablation.topic else outcome

    world = TopicWorld(30, {"query 0": list(range(30))}, composed(KINDS["2 of 3"]), k=12)
    assert not searched(world).removal.ids


def test_memories_that_bring_the_harm_by_their_number_are_no_set():
    # Any eight memories do it, one more nat each: an effect of no memory in particular.
    world = World(40, {"query 0": list(range(40))}, lambda _query, context: len(context) - 7.5, k=12)
    search = searched(world)
    assert not search.removal.ids
    assert search.states["e000"].status == "not cleared"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-2.0, 1.9), min_size=30, max_size=30), st.floats(-8.0, -0.1))
def test_memories_whose_effects_only_add_up_are_no_set(weights, bias):
    def lean(_query: str, context: frozenset[int]) -> float:
        return math.fsum(weights[number] for number in context) + bias

    search = searched(World(30, {"query 0": list(range(30))}, lean, k=8))
    assert not any("together" in reason for reason in search.removal.removed.values())


def test_a_planted_control_memory_that_completes_a_set_hides_no_member():
    sets = together({1, 2, 29}, of=2)  # what matches the query least is asked as the first control memory
    world = World(30, {"query 0": [*range(27), 29, 27, 28]}, composed(sets), k=12)
    assert set(searched(world).removal.ids) >= ids({1, 2})


def test_events_that_share_their_context_look_for_the_set_once():
    orders = {f"query {number}": list(range(30)) for number in range(4)}
    asked = []
    for count in (1, 4):
        world = World(30, orders, composed(KINDS["2 of 3"]), k=12)
        search = searched(world, count)
        assert search.removal.ids == ids({1, 2, 3})
        assert {state.status for state in search.states.values()} == {"cleared"}
        asked.append({item.content for item in world.asked if item.kind == "keep_group" and item.measure == "text"})
    assert {content[0] for content in asked[1]} == {"e000"}


def test_a_budget_that_ends_in_the_step_removes_no_part_of_a_set_and_says_so():
    whole = store(KINDS["2 of 3"])
    searched(whole)
    for most in range(len(whole.asked)):
        search = searched(store(KINDS["2 of 3"]), max_replays=most)
        assert search.removal.ids in (set(), ids({1, 2, 3}))
        assert search.not_examined == [f"event e000: budget of {most} replays is spent"]


@st.composite
def families(draw: Callable[..., Any]) -> list[frozenset[int]]:
    """One or two k-of-n sets apart from each other, no member of which does it alone."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    found, first = [], 1
    for size in sizes:
        found += together(range(first, first + size), of=draw(st.integers(2, size)))
        first += size
    return found


@settings(max_examples=150, deadline=None)
@given(families(), st.integers(9, 40), st.integers(0, 2**32), st.dictionaries(st.integers(9, 59), st.floats(0, 0.5)))
def test_sets_are_named_whole_and_nothing_benign_in_any_world(sets, k, seed, priming):
    world = store(sets, k=k, entries=60, seed=seed, priming=priming)
    search = searched(world)
    members = frozenset().union(*sets)
    assert search.removal.ids == ids(members)
    assert search.states["e000"].status == "cleared"
    assert len(world.asked) <= 3 * (k + 2) + 24 * len(members)
