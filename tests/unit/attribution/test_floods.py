"""Floods of poison: memories that an agent cannot tell apart are measured once, others are found in few rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memory_audit.attribution.replays.retrieval import RankedMemory
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import SearchSettings
from tests.unit.attribution.world import World, make_event

POISON = 1_000
BENIGN = 400


def poisoned_world(poison: int, benign: int, *, alike: bool = True, metadata: bool = False) -> World:
    """Poison matches best, by a writer each, and each one alone hijacks the agent.

    It has one text where it is `alike`, but for a metadata value each where that is wanted.
    """
    hijacked = frozenset(range(poison))
    world = World(poison + benign, {}, lambda _, context: 3.0 if context & hijacked else -3.0, k=3)
    for number in hijacked if alike else ():
        world.entries[number] = replace(
            world.entries[number], request="question", response="poison",
            metadata={"session": str(number)} if metadata else {},
        )  # fmt: skip
    world.memory = RankedMemory(world.entries, lambda _: np.arange(poison + benign), world.memory.k)
    return world


def searched(world: World, *, events: int = 1, **settings: int) -> SetSearch:
    asked = [make_event(number, query=f"query {number}") for number in range(events)]
    search = SetSearch(world.memory, asked, SearchSettings(**{"attribution_nats": 2.0, **settings}))
    world.run(search)
    return search


def test_copies_are_those_with_the_same_request_response_and_metadata():
    world = poisoned_world(3, 2)
    tagged = [replace(entry, metadata={"tag": "x"}) if entry.entry_id == "m001" else entry for entry in world.entries]
    memory = RankedMemory(tagged, lambda _: np.arange(5), 3)
    assert memory.copies("m000") == memory.copies("m002") == ("m000", "m002")
    assert memory.copies("m001") == ("m001",)
    assert memory.copies("m003") == ("m003",)
    assert memory.copies("m009") == ("m009",)


def test_a_flood_of_copies_is_removed_whole_at_the_cost_of_one():
    few, flood = poisoned_world(3, BENIGN), poisoned_world(POISON, BENIGN)
    found = searched(few), searched(flood)
    assert [len(search.removal.ids) for search in found] == [3, POISON]
    assert {state.status for search in found for state in search.states.values()} == {"cleared"}
    assert len(flood.asked) == len(few.asked)
    assert found[1].not_examined == []


def test_copies_get_the_same_evidence_and_reason_at_every_event():
    world = poisoned_world(5, 20)
    search = searched(world, events=2)
    for state in search.states.values():
        assert len({state.alone(f"m{number:03d}") for number in range(5)}) == 1
    assert len(set(search.removal.removed.values())) == 1


def test_what_differs_in_metadata_is_asked_about_by_itself():
    alike, tagged = poisoned_world(5, 20), poisoned_world(5, 20, metadata=True)
    for world in (alike, tagged):
        assert searched(world).removal.ids == {f"m{number:03d}" for number in range(5)}
    asked = [sum(item.kept is not None and len(item.kept) == 1 for item in world.asked) for world in (alike, tagged)]
    assert asked[1] - asked[0] == 4


def test_copies_of_a_benign_memory_stay():
    world = poisoned_world(2, 30)
    for number in (2, 3, 4):
        world.entries[number] = replace(world.entries[number], request="thanks", response="Thanks!")
    world.memory = RankedMemory(world.entries, lambda _: np.arange(32), 3)
    assert searched(world).removal.ids == {"m000", "m001"}


def test_a_budget_counts_copies_once():
    world = poisoned_world(POISON, BENIGN)
    search = searched(world, max_replays=40)
    assert len(search.removal.ids) == POISON
    assert len(world.asked) <= 40


def test_poison_by_the_thousand_in_other_words_is_found_in_few_rounds_and_no_question_is_wasted():
    poison, benign = 3_000, 2_000
    world = poisoned_world(poison, benign, alike=False)
    names = [entry.entry_id for entry in world.entries]
    drawn = np.random.default_rng(0)
    resembles = {name: [names[other] for other in drawn.integers(0, poison, 12)] for name in names[:poison]}
    search = SetSearch(
        world.memory, [make_event(0)], SearchSettings(attribution_nats=2.0, max_rounds=40), resembles=resembles
    )
    world.run(search)
    assert search.removal.ids == set(names[:poison])
    assert search.not_examined == []
    assert len(world.asked) < poison + 20


def test_poison_that_nothing_ties_together_is_found_as_it_moves_up_until_the_rounds_end():
    poison = 400
    world = poisoned_world(poison, BENIGN, alike=False)
    found, cut = searched(world), searched(world, max_rounds=100)
    assert len(found.removal.ids) == poison
    assert 100 < len(cut.removal.ids) < poison
    assert cut.not_examined == ["event e000: no end after 100 rounds"]
