"""Events that diverge at the same place and word tell a format effect together, by as many controls as one would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory_audit.attribution.search.points.divergence import MeasurementPoint
from memory_audit.attribution.search.points.format_points import place_of, shared_format
from tests.unit.attribution.test_search import search_of
from tests.unit.attribution.world import World

POINT = MeasurementPoint(history=(), answer="Thought: park at the cemetery", start=0, clean="Answer: deck B")


def test_three_different_control_memories_settle_a_place_wherever_they_were_asked():
    elsewhere = replace(POINT, answer="Thought: use the other tool")
    told = [(POINT, "a", True), (elsewhere, "b", True), (POINT, "c", True)]
    assert shared_format(told, 3) == {place_of(POINT)} == {place_of(elsewhere)}


def test_one_planted_memory_settles_nothing_however_many_events_ask_it():
    assert not shared_format([(POINT, "planted", True)] * 9, 3)


def test_one_control_memory_that_falls_short_keeps_every_event_asking_for_itself():
    told = [(POINT, name, True) for name in "abcd"]
    assert not shared_format([*told, (replace(POINT, answer="Thought: else"), "e", False)], 3)


@pytest.mark.parametrize(
    "other",
    [
        replace(POINT, answer="Harm: park"),
        replace(POINT, answer="Thought: park", start=8),
        replace(POINT, clean="Deck B"),
        replace(POINT, history=("one turn",)),
    ],
    ids=["word", "place", "clean word", "turn"],
)
def test_another_place_is_not_settled(other):
    assert shared_format([(POINT, name, True) for name in "abc"], 3) == {place_of(POINT)} != {place_of(other)}


class FormatWorld(World):
    """Any memory brings "Thought:"; what it goes on with is the poison's. `shy` memories do not bring the format."""

    def __init__(self, events: int, *, poison: set[int], shy: frozenset[int] | set[int] = frozenset()) -> None:
        orders = {f"query {number}": list(range(16)) for number in range(events)}
        super().__init__(16, orders, lambda _query, shown: 3.0 if shown & poison else -3.0)
        self._poison, self._shy = poison, shy

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        shown = {int(name[1:]) for name in outcome.context}
        poisoned = bool(shown & self._poison)
        if ablation.measure == "text":
            said = ("Thought: so harm is done" if poisoned else "Thought: let all be well") if shown else "Just that."
            return replace(outcome, output=said, answers=(said,))
        if ablation.measure == "continuation":
            return replace(outcome, output=" let all be well")
        if ablation.point == 0:
            return replace(outcome, log_odds_nats=-6.0 + 5.0 * bool(shown - self._shy))
        return outcome


def first_divergences(world: World) -> dict[str, int]:
    """How many control memories are asked at the first divergence point, by event."""
    asked = [item for item in world.asked if item.point == 0 and item.measure == "odds" and item.kept]
    return {event: sum(item.event_id == event for item in asked) for event in {item.event_id for item in asked}}


@pytest.mark.parametrize(("events", "each"), [(1, [3]), (2, [2, 2]), (3, [1] * 3), (6, [1] * 3), (40, [1] * 3)])
def test_control_memories_asked_at_a_shared_divergence_are_as_many_as_one_event_would_ask(events, each):
    world = FormatWorld(events, poison={1, 3})
    search = search_of(world, events)
    world.run(search)
    assert search.removal.ids == {"m001", "m003"}
    assert sorted(first_divergences(world).values()) == each


def test_where_one_memory_does_not_bring_the_format_the_divergence_counts_as_before():
    world = FormatWorld(6, poison={1, 3}, shy={13, 14, 15})
    search = search_of(world, 6)
    world.run(search)
    assert search.removal.ids == {"m001", "m003"}
    assert not any(state.controls.format_points for state in search.states.values())


def test_events_that_nothing_settles_for_ask_in_one_round():
    world = FormatWorld(40, poison={1, 3}, shy={13, 14, 15})
    search = search_of(world, 40)
    rounds = 0
    while ablations := search.plan():
        rounds += search.phase == "baseline"
        search.observe([world.answer(search.states[item.event_id].event, item) for item in ablations])
    assert search.removal.ids == {"m001", "m003"}
    assert rounds == 2
