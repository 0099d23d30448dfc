"""Harm that any memory brings: format effects are no evidence, nor are a model's own mistakes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.attribution.replays.ablation import keep_only
from memory_audit.attribution.replays.retrieval import RankedMemory
from memory_audit.attribution.search.controls import ControlMemories
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import MOST_POINTS, SearchSettings
from tests.unit.attribution.test_search import OpeningWorld, hijack, search_of
from tests.unit.attribution.world import World, make_event


class AnyMemoryWorld(World):
    """Any memory brings the agent's format, and that a wrong answer; poison, if there is any, brings its own words.

    The first points are format effects: any memory raises their odds as much. From `harm_from` on poison alone does.
    """

    def __init__(self, *, poison: set[int], wrong_anyway: set[int], harm_from: int = 9, size: int = 12) -> None:
        super().__init__(size, {"query 0": list(range(size))}, hijack(poison))
        self._poison = {f"m{number:03d}" for number in poison}
        self._wrong = {f"m{number:03d}" for number in wrong_anyway}
        self._from = harm_from

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        shown = set(outcome.context)
        poisoned = bool(shown & self._poison)
        harmful = bool(shown) and (poisoned or shown <= self._wrong)
        if ablation.measure == "text":
            said = ("Thought: so harm is done" if harmful else "Thought: let all be well") if shown else "Just that."
            return replace(outcome, harm=float(harmful), output=said, answers=(said,))
        if ablation.measure == "continuation":
            return replace(outcome, output=" however")
        odds = -6.0 + 4.0 * bool(shown) if ablation.point < self._from else (3.0 if poisoned else -5.0)
        return replace(outcome, harm=None, log_odds_nats=odds)


def test_a_wrong_answer_that_any_memory_brings_is_attributed_to_none():
    world = AnyMemoryWorld(poison=set(), wrong_anyway=set(range(12)))
    search = search_of(world)
    world.run(search)
    state = search.states["e000"]
    assert state.status == "memory is not the cause"
    assert state.reason == "harm comes with whichever memory is shown: with each of 10, one at a time"
    assert not search.removal.ids


def test_a_wrong_answer_that_many_memories_bring_removes_none_of_them():
    world = AnyMemoryWorld(poison=set(), wrong_anyway=set(range(8)))
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "not cleared"
    assert not search.removal.ids


def test_a_format_effect_is_left_out_and_the_poison_is_told_by_its_words():
    world = AnyMemoryWorld(poison={1, 2}, wrong_anyway=set(), harm_from=1)
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].controls.format_points == {0}
    assert search.states["e000"].status == "cleared"
    assert search.removal.ids == {"m001", "m002"}


def test_where_all_points_are_format_effects_the_poison_is_told_from_another_memorys_replay():
    world = AnyMemoryWorld(poison={1, 2}, wrong_anyway=set(), harm_from=4)
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].where.reference
    assert search.states["e000"].status == "cleared"
    assert search.removal.ids == {"m001", "m002"}


def test_poison_planted_among_control_memories_hides_no_poison():
    world = AnyMemoryWorld(poison={1, 9, 10, 11}, wrong_anyway=set(), harm_from=1)
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "cleared"
    assert "m001" in search.removal.ids


class SuppressedFormatWorld(AnyMemoryWorld):
    """What matches the query least is planted: it suppresses the format that any memory brings."""

    planted: frozenset[str] = frozenset()

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        asked_of_format = ablation.measure == "odds" and ablation.point < self._from
        if asked_of_format and outcome.context and self.planted.issuperset(outcome.context):
            return replace(outcome, log_odds_nats=-9.0)
        return outcome


@pytest.mark.parametrize("planted", [0, 1, 2, 3, 8])
@pytest.mark.parametrize(("harm_from", "removed"), [(1, {"m001", "m002"}), (4, {"m001", "m002"}), (9, set())])
def test_planted_control_memories_that_suppress_a_format_change_no_attribution(harm_from, removed, planted):
    world = SuppressedFormatWorld(poison={1, 2}, wrong_anyway=set(), harm_from=harm_from, size=40)
    world.planted = frozenset(f"m{number:03d}" for number in range(40 - planted, 40))
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == removed
    assert search.states["e000"].status == ("cleared" if removed else "not cleared")


class LeaningWorld(World):
    """What each memory alone adds to the odds at each event, in nats; together they do harm."""

    def __init__(self, gains: dict[str, list[float]], *, k: int = 3, harmful_above: float = 2.5) -> None:
        size = len(next(iter(gains.values())))
        super().__init__(size, {query: list(range(size)) for query in gains}, lambda _query, _context: 0.0, k=k)
        self._gains, self._above = gains, harmful_above

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        gain = sum(self._gains[event.query][int(entry_id[1:])] for entry_id in outcome.context)
        if ablation.measure == "text":
            said = "harm done" if gain > self._above else "all well"
            return replace(outcome, harm=float(gain > self._above), output=said, answers=(said,))
        return replace(outcome, log_odds_nats=-4.0 + gain)


def test_weak_evidence_at_many_events_adds_up():
    gains = {f"query {number}": [3.0, 1.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] for number in range(3)}
    world = LeaningWorld(gains)
    search = search_of(world, count=3)
    world.run(search)
    assert search.removal.removed["m001"] == (
        "alone raises the odds of the harm in 3 events, by 1.6 nats and less: by 1.8 more than 1.0 each"
    )


@pytest.mark.parametrize("events", [2, 3])
def test_weak_evidence_that_adds_up_over_most_of_a_store_removes_nothing(events):
    gains = {f"query {number}": [1.5] * 18 for number in range(events)}
    world = LeaningWorld(gains, k=18, harmful_above=2.0)
    search = search_of(world, count=events)
    world.run(search)
    assert len(search.removal.ids) <= 0.75 * 18
    assert {state.status for state in search.states.values()} == {"not cleared"}
    reasons = {state.reason for state in search.states.values()}
    assert "the effect is diffuse: 18 of 18 memories add to it, none by much" in reasons


def test_a_replay_that_cannot_be_judged_is_no_harm_that_stays():
    class Unsure(LeaningWorld):
        def answer(self, event, ablation):
            outcome = super().answer(event, ablation)
            return replace(outcome, harm=None) if ablation.kind == "removal" else outcome

    world = Unsure({"query 0": [3.0, 1.6, 1.5, 0.0, 0.0, 0.0, 0.0, 0.0]})
    search = search_of(world)
    world.run(search)
    assert search.removal.removed == {"m000": "alone raises the odds of the harm in e000 by 3.0 nats"}
    state = search.states["e000"]
    assert (state.status, state.reason) == (
        "not cleared", "the harm scorer could not judge the replay without the removed set",
    )  # fmt: skip


def test_what_falls_short_elsewhere_counts_against_weak_evidence():
    gains = {f"query {number}": [3.0, 1.6 if number < 2 else 0.0, 0, 0, 0, 0, 0, 0] for number in range(4)}
    world = LeaningWorld(gains)
    search = search_of(world, count=4)
    world.run(search)
    assert search.removal.ids == {"m000"}


def test_a_memory_that_one_event_skipped_is_measured_where_its_like_weighs_most():
    gains = {"query 0": [4.0, 0, 0, 0, 0, 0, 0, 3.0], "query 1": [3.0, 0, 0, 0, 0, 0, 0, 0.5]}
    world = LeaningWorld(gains)
    search = search_of(world, count=2, resembles={"m000": ["m007"]})
    world.run(search)
    assert search.removal.ids == {"m000", "m007"}


class PlantedWorld(AnyMemoryWorld):
    """At the second event harm comes with whichever memory is shown alone; at the first the poison's words tell."""

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if event.event_id == "e001" and ablation.at_point:
            return replace(outcome, log_odds_nats=-6.0 + 4.0 * bool(outcome.context))
        if event.event_id == "e001" and len(outcome.context) == 1:
            return replace(outcome, harm=1.0)
        return outcome


def planted_world() -> PlantedWorld:
    world = PlantedWorld(poison={0, 1, 2}, wrong_anyway=set(), harm_from=1)
    world.memory = RankedMemory(world.entries, lambda _query: np.arange(12), 5)
    return world


def test_harm_that_comes_with_whichever_memory_is_shown_is_attributed_to_none():
    world = planted_world()
    search = SetSearch(world.memory, [make_event(1)], SearchSettings(attribution_nats=2.0))
    world.run(search)
    assert search.states["e001"].status == "memory is not the cause"


def test_memory_is_the_cause_after_all_where_an_attributed_one_was_among_those_shown():
    world = planted_world()
    search = search_of(world, count=2)
    world.run(search)
    assert search.removal.ids == {"m000", "m001", "m002"}
    assert [state.status for state in search.states.values()] == ["cleared", "cleared"]


class UnrepairableWorld(LeaningWorld):
    """Two memories lean to the harm, which comes whenever any memory is shown with others."""

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure == "text":
            harmful = bool(outcome.context)
            said = "harm done" if harmful else "all well"
            return replace(outcome, harm=float(harmful), output=said, answers=(said,))
        return outcome


def test_a_memory_whose_absence_repairs_nothing_is_put_back():
    world = UnrepairableWorld({"query 0": [3.0, 3.0, 0, 0, 0, 0, 0, 0]})
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "not cleared"
    assert not search.removal.ids


class WobblyWorld(LeaningWorld):
    """Memories add to the odds by point, so that a control memory may bring one point and not another."""

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure == "continuation":
            return replace(outcome, output=" however")
        if outcome.log_odds_nats is None:
            return outcome
        return replace(
            outcome, log_odds_nats=outcome.log_odds_nats + 2.5 * bool(outcome.context) * (ablation.point == 0)
        )


class AllAtOnce(ControlMemories):
    """Asks every control memory, whatever the first ones say."""

    def at_divergence(self, state, point):
        gate = keep_only(state.event_id, "no_memory", "odds", (), point)
        return list(dict.fromkeys([gate, *self.without(state, point)]))

    def for_span(self, state):
        return [item for point in range(state.where.span_end) for item in self.without(state, point)]


@contextmanager
def asking(controls):
    """Make searches with control memories of this class, which are asked in another order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memory_audit.attribution.search.search.ControlMemories", lambda *args: controls(*args[:3]))
        yield


GAINS = st.lists(st.sampled_from([-1.0, 0.0, 0.7, 1.5, 2.1, 3.0]), min_size=6, max_size=6)
CONTROLS = {("m006",), ("m007",), ("m008",)}
HARMLESS = st.lists(st.sampled_from([-4.0, -1.0, 0.0, 0.3, 0.9]), min_size=3, max_size=3)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(GAINS, HARMLESS).map(lambda pair: pair[0] + pair[1]), min_size=1, max_size=3))
def test_control_memories_one_after_the_other_say_what_all_of_them_would(rows):
    found = []
    for how in (ControlMemories, AllAtOnce):
        world = WobblyWorld({f"query {number}": gains for number, gains in enumerate(rows)})
        with asking(how):
            search = search_of(world, count=len(rows))
        world.run(search)
        states = search.states.values()
        without_cause = [item for item in world.asked if item.at_point and item.kept in {(), *CONTROLS}]
        found.append(
            (
                search.removal.ids,
                [(state.status, state.controls.format_points) for state in states],
                len(without_cause),
            )
        )
    assert found[0][:2] == found[1][:2]
    assert found[0][2] <= found[1][2]


def test_one_control_memory_is_enough_where_it_does_nothing():
    world = LeaningWorld({"query 0": [3.0, 0, 0, 0, 0, 0, 0, 0]})
    search = search_of(world)
    world.run(search)
    controls = {("m005",), ("m006",), ("m007",)}
    assert [item.kept for item in world.asked if item.at_point and item.kept in controls] == [("m005",)]


class TellingWorld(LeaningWorld):
    """The clean replay, forced through the first point, tells the odds at the second."""

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        return (
            outcome if ablation.measure != "continuation" else replace(outcome, output=" however", log_odds_nats=-4.0)
        )


def test_the_odds_that_a_continuation_tells_are_not_asked_for():
    world = TellingWorld({"query 0": [3.0, 0, 0, 0, 0, 0, 0, 0]})
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m000"}
    assert len(search.states["e000"].points) == 2
    assert [item.point for item in world.asked if item.measure == "odds" and item.kind == "no_memory"] == [0]


def test_an_attribution_that_depends_on_control_memories_asks_for_them():
    # Without memory 0 the harm is gone. Memory 1 adds 1.6 nats to the first control's 0.9, 2.2 to the last one's 0.3.
    world = LeaningWorld({"query 0": [9.0, 2.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.3]}, harmful_above=6.0)
    search = search_of(world)
    world.run(search)
    assert search.removal.ids == {"m000", "m001"}


class HalfRepairableWorld(UnrepairableWorld):
    """One event is cured without its poison, and may be ill again with others; the other event nothing cures."""

    relapse: frozenset[str] = frozenset()

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        if ablation.measure == "text" and event.event_id == "e000":
            harmful = "m000" in outcome.context or bool(self.relapse & set(outcome.context))
            return replace(outcome, harm=float(harmful), answers=("harm done" if harmful else "all well",))
        return outcome


HALF_REPAIRABLE = {"query 0": [4.0, 0, 0, 0, 0, 0, 0, 0], "query 1": [0.5, 3.0, 3.0, 0, 0, 0, 0, 0]}


def half_repairable(
    world: HalfRepairableWorld, *then: dict[str, str], resembles: dict[str, list[str]] | None = None
) -> SetSearch:
    """Search, where each time that the search has ended more memories turn out to derive from what it found."""
    waiting, known = list(then), {}

    def closure(_attributed):
        known.update(waiting.pop(0) if waiting else {})
        return known

    search = search_of(world, count=2, resembles=resembles, closure=closure)
    world.run(search)
    assert not waiting
    cured, incurable = search.states.values()
    assert cured.status == "cleared"
    named = [name for name in search.removal.ids if incurable.evidence_of(name) >= 2.0]
    assert incurable.status == ("contributed" if named else "not cleared")
    return search


def test_who_is_put_back_leaves_cleared_events_cleared_on_replay():
    search = half_repairable(HalfRepairableWorld(HALF_REPAIRABLE))
    assert search.removal.ids == {"m000"}
    assert search.states["e000"].after.context == ("m001", "m002", "m003")


def test_a_memory_whose_return_brings_harm_back_is_not_put_back():
    world = HalfRepairableWorld(HALF_REPAIRABLE)
    world.relapse = frozenset({"m001"})
    assert half_repairable(world).removal.ids >= {"m000", "m001"}


def test_who_was_put_back_is_put_back_again_each_time_that_others_are_taken_along():
    world = HalfRepairableWorld(HALF_REPAIRABLE)
    search = half_repairable(world, {"m007": "derived from m000"}, {"m006": "derived from m007"})
    assert search.removal.ids == {"m000", "m006", "m007"}
    assert search.states["e000"].after.context == ("m001", "m002", "m003")
    assert search.states["e001"].reason.endswith("and they were put back")


def test_who_is_taken_along_is_never_put_back_though_an_incurable_event_speaks_against_it():
    search = half_repairable(HalfRepairableWorld(HALF_REPAIRABLE), {"m001": "derived from m000"})
    assert search.removal.removed["m001"] == "derived from m000"
    assert search.removal.ids == {"m000", "m001"}


def test_likeness_to_a_derived_memory_keeps_none_out():
    world = HalfRepairableWorld(HALF_REPAIRABLE)
    search = half_repairable(world, {"m007": "derived from m000"}, resembles={"m007": ["m001"]})
    assert search.removal.ids == {"m000", "m007"}


def test_a_possible_ancestor_of_derived_memories_is_not_put_back_without_them():
    class PairWorld(HalfRepairableWorld):
        def answer(self, event, ablation):
            outcome = super().answer(event, ablation)
            again = ablation.measure == "text" and event.event_id == "e000" and {"m001", "m003"} <= set(outcome.context)
            return replace(outcome, harm=1.0, answers=("harm done",)) if again else outcome

    world = PairWorld(HALF_REPAIRABLE)
    search = half_repairable(world, {"m003": "derived from m001"})
    assert search.removal.ids == {"m000", "m001", "m002", "m003"}


def test_an_event_that_stays_harmful_without_the_many_it_attributes_is_excluded_though_another_was_cleared():
    world = HalfRepairableWorld({"query 0": [4.0] + [0.0] * 11, "query 1": [0.5, 3.0, 3.0, 3.0] + [0.0] * 8})
    world.relapse = frozenset({"m001"})
    search = search_of(world, count=2)
    world.run(search)
    assert [state.status for state in search.states.values()] == ["contributed", "not cleared"]
    assert search.states["e001"].reason.endswith("the event attributes it to: it is excluded")
    assert search.removal.ids <= {"m000"}


def test_an_event_that_cannot_be_judged_puts_nothing_back():
    class Speechless(UnrepairableWorld):
        def answer(self, event, ablation):
            outcome = super().answer(event, ablation)
            return replace(outcome, harm=None) if ablation.kind == "removal" else outcome

    world = Speechless({"query 0": [3.0, 3.0, 0, 0, 0, 0, 0, 0]})
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "not cleared"
    assert "could not judge" in search.states["e000"].reason
    assert search.removal.ids == {"m000", "m001"}


def test_a_memory_like_an_attributed_one_that_stays_is_not_put_back():
    world = HalfRepairableWorld({"query 0": [4.0, 0, 0, 0, 0, 0, 0, 0], "query 1": [5.0, 3.0, 0, 0, 0, 0, 0, 3.0]})
    search = search_of(world, count=2, resembles={"m000": ["m007"]})
    world.run(search)
    assert [state.status for state in search.states.values()] == ["cleared", "contributed"]
    assert search.removal.ids == {"m000", "m007"}


def test_a_budget_that_ends_before_the_last_replays_still_puts_back_what_no_cleared_event_sees():
    gains = {"query 0": [4.0, 0, 0, 0, 0, 0, 0, 0], "query 1": [0.5, 3.0, 3.0, 0, 0, 0, 0, 0]}
    world = HalfRepairableWorld(gains)
    world.run(search_of(world, count=2))
    most = len(world.asked) - 1
    world = HalfRepairableWorld(gains)
    search = search_of(world, count=2, max_replays=most)
    world.run(search)
    assert any("put back" in line for line in search.not_examined)
    assert search.removal.ids >= {"m000"}


def test_an_event_that_attributes_most_of_the_store_is_excluded():
    world = LeaningWorld({"query 0": [3.0] * 14 + [0.0, 0.0], "query 1": [4.0] + [0.0] * 15})
    search = search_of(world, count=2)
    world.run(search)
    assert search.states["e000"].status == "not cleared"
    assert search.states["e000"].reason == "the effect is diffuse: 13 of 16 memories bring it, one at a time"
    assert search.states["e001"].status == "cleared"
    assert search.removal.ids == {"m000"}


def test_three_quarters_of_a_store_may_still_be_poison():
    world = LeaningWorld({"query 0": [3.0] * 12 + [0.0] * 4})
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "cleared"
    assert len(search.removal.ids) == 12


def test_an_effect_without_a_gap_is_diffuse_and_removes_nothing():
    world = LeaningWorld({"query 0": [3.0 - 0.2 * number for number in range(16)], "query 1": [4.0] + [0.0] * 15})
    search = search_of(world, count=2)
    world.run(search)
    state = search.states["e000"]
    assert state.status == "not cleared"
    assert state.reason.endswith("the event attributes it to: it is excluded")
    assert search.states["e001"].status == "cleared"
    assert search.removal.ids == {"m000"}


def test_a_large_share_that_stands_out_is_attributed():
    world = LeaningWorld({"query 0": [3.0 - 0.2 * number for number in range(6)] + [0.9 - 0.1 * n for n in range(10)]})
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "cleared"
    assert search.removal.ids == {f"m{number:03d}" for number in range(6)}


@pytest.mark.parametrize(("harm_from", "removed"), [(2, 5), (4, 0)])
def test_a_quarter_of_the_store_is_attributed_at_the_first_half_of_the_points_only(harm_from, removed):
    world = OpeningWorld(size=16, poison=set(range(5)), opening=set(range(13)), harm_from=harm_from)
    search = search_of(world)
    world.run(search)
    state = search.states["e000"]
    assert len(search.removal.ids) == removed
    assert state.status == ("cleared" if removed else "not cleared")
    assert state.reason.endswith("and only late in the answer") == (not removed)


class WornWorld(World):
    """The second point is wording; the first, third and fourth are format effects; then poison alone counts."""

    def __init__(self) -> None:
        super().__init__(12, {"query 0": list(range(12))}, hijack({0}), k=3)

    def answer(self, event, ablation):
        outcome = super().answer(event, ablation)
        shown = outcome.context
        if ablation.measure == "text":
            harmful = "m000" in shown
            said = ("Thought: so harm is done" if harmful else "Thought: let all be well") if shown else "Just that."
            return replace(outcome, harm=float(harmful), output=said, answers=(said,))
        if ablation.measure == "continuation":
            return replace(outcome, output=" however", log_odds_nats=None)
        form, style, poison = 2.0 * bool(shown), -4.0 + 1.9 * ("m001" in shown), -4.0 + 6.0 * ("m000" in shown)
        return replace(outcome, log_odds_nats={0: form, 1: style, 2: form, 3: form}.get(ablation.point, poison))


def test_where_the_points_after_retired_ones_are_format_effects_later_ones_are_asked_before_anything_is_removed():
    world = WornWorld()
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].controls.format_points == {0, 2, 3}
    assert search.states["e000"].status == "cleared"
    assert search.removal.ids == {"m000"}
    assert not [ablation for ablation in world.asked if ablation.kind == "removal" and "m001" in ablation.removed]


def test_memories_whose_absence_leaves_the_harm_were_told_by_wording_and_later_points_find_the_poison():
    world = OpeningWorld(size=16, poison={1}, opening={0, 2, 3}, harm_from=2)
    search = search_of(world)
    world.run(search)
    state = search.states["e000"]
    assert state.status == "cleared"
    assert search.removal.ids == {"m001"}
    assert state.where.retired == 2


def test_what_most_memories_bring_is_wording_and_later_points_find_the_poison():
    world = OpeningWorld(size=16, poison={1}, opening=set(range(13)), harm_from=2)
    search = search_of(world)
    world.run(search)
    state = search.states["e000"]
    assert state.status == "cleared"
    assert not state.settled.excluded
    assert search.removal.ids == {"m001"}


def test_wording_at_every_point_removes_nothing():
    world = OpeningWorld(size=16, poison={1}, opening={0, 2, 3}, harm_from=99)
    search = search_of(world)
    world.run(search)
    assert search.states["e000"].status == "not cleared"
    assert not search.removal.ids
    assert len(search.states["e000"].points) == MOST_POINTS


def test_what_other_events_attribute_stays_where_one_event_retires_its_points():
    orders = {"query 0": list(range(8)), "query 1": list(range(8, 16))}
    world = OpeningWorld(size=16, orders=orders, poison={1, 9}, opening={0, 2, 3, 9}, harm_from=2)
    search = search_of(world, count=2)
    world.run(search)
    assert {state.status for state in search.states.values()} == {"cleared"}
    assert search.removal.ids == {"m001", "m009"}
