"""What an audit measured, turned into what it found: on a finished search with the fakes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from memory_audit.attribution.evidence import Influence, credit_over_events
from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.attribution.replays.ablation import Outcome, leave_out
from memory_audit.attribution.replays.retrieval import RankedMemory, levenshtein_ranker
from memory_audit.attribution.search.event import EventState, Replays
from memory_audit.generation import TokenUsage
from memory_audit.models.fakes import FakeGenerator
from memory_audit.report.findings import TenantEvidence, rank, tenant_result
from tests.audit_world import CONFIG, PLANTED, entry, event, make_snapshot, run_local


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The evidence of tenant globex, caught on its way into the result."""
    caught = {}

    def keep(evidence, config):
        caught[evidence.tenant] = evidence
        return tenant_result(evidence, config)

    folder = tmp_path_factory.mktemp("findings")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memory_audit.jobs.run.audit_memory.tenant_result", keep)
        run_local(make_snapshot(folder / "memory"), folder / "run", generator=FakeGenerator())
    return caught["globex"]


def test_influence_is_highest_for_the_planted_entries_and_absent_where_nothing_was_measured(found):
    influence = found.search.influence
    planted = PLANTED["globex"]
    assert min(influence[name] for name in planted) > max(
        (value for name, value in influence.items() if name not in planted), default=0.0
    )
    assert set(influence) < {entry.entry_id for entry in found.memory.entries}


def test_alpha_one_ranks_by_influence_alone_and_alpha_zero_by_inconsistency_alone(found):
    influence = found.search.influence
    by_influence = [score.entry_id for score in rank(found.memory, found.tenant_graph, influence, 1.0)]
    assert set(by_influence[: len(PLANTED["globex"])]) == PLANTED["globex"]
    by_inconsistency = rank(found.memory, found.tenant_graph, influence, 0.0)
    assert [score.ds for score in by_inconsistency] == [score.cas_normalised for score in by_inconsistency]


OUTCOME = Outcome(
    pair_id="p", event_id="e", context=(), harm=0.0, log_odds_nats=None, output="fine", answers=("fine",),
    prompt_hash="h", memoised=False, usage=TokenUsage(),
)  # fmt: skip


def test_a_spared_entry_counts_its_mean_credit_at_the_events_that_spared_it():
    found = crowd(entries=4, events=4)  # each is measured at two events: m0 and m1 at e0 and e2
    influences = [state.influences for state in found.search.states.values()]
    summed = credit_over_events(influences, {"m0": 3, "m2": 0, "unknown": 5})
    assert summed == {"m0": 1 + 3 + 3 * 2, "m1": 1 + 3, "m2": 2 + 4, "m3": 2 + 4}


class Watched(dict):
    """Counts how often a value is looked up."""

    looked_up = 0

    def __contains__(self, key) -> bool:
        Watched.looked_up += 1
        return super().__contains__(key)

    def __getitem__(self, key) -> Influence:
        Watched.looked_up += 1
        return super().__getitem__(key)

    def get(self, key, default=None):
        Watched.looked_up += 1
        return super().get(key, default)


def crowd(entries, events, of_each=2):
    """Evidence of many entries that are all removed, of which each event measured a few of its own."""
    ids = [f"m{number}" for number in range(entries)]
    states = {}
    for number in range(events):
        own = [ids[(number * of_each + item) % entries] for item in range(of_each)]
        asked = dataclasses.replace(event(f"e{number}", "acme", "q"), retrieved=tuple(own))
        told = Watched({
            name: Influence(event_id=asked.event_id, entry_id=name, sufficiency_nats=1.0 + number) for name in own
        })  # fmt: skip
        replays = Replays(full=OUTCOME, without_memory=OUTCOME, by_context={tuple(own): OUTCOME})
        states[asked.event_id] = EventState(event=asked, replays=replays, influences=told)
    graph = SimpleNamespace(
        compared=lambda: ids, cas=lambda _: 0.0, density=lambda _: 0.0, usual=None, edges=lambda: ()
    )  # fmt: skip
    removed = dict.fromkeys(ids, "x")
    search = SimpleNamespace(states=states, by_evidence=removed, not_examined=(), beyond_budget=())
    return TenantEvidence(
        tenant="acme", memory=RankedMemory([entry("acme", name, "q", "r") for name in ids], levenshtein_ranker([]), 3),
        tenant_graph=graph, search=search, removal=RemovalSet(attributed=removed),
        checked={leave_out(name, "removal", "text", frozenset(ids)).pair_id: OUTCOME for name in states},
    )  # fmt: skip


def test_a_large_store_with_many_events_is_written_down_in_one_pass_over_what_was_measured():
    found = crowd(entries=300, events=100)
    credit = credit_over_events([state.influences for state in found.search.states.values()], {})
    found = dataclasses.replace(found, ranking=rank(found.memory, found.tenant_graph, credit, 0.5))
    Watched.looked_up = 0
    result = tenant_result(found, CONFIG)
    assert Watched.looked_up < 10 * 100 * 2  # of each event two were measured
    assert [item.causes for item in result.events[:2]] == [("m0", "m1"), ("m2", "m3")]
    strongest = {score.entry_id: score.sufficiency_nats for score in result.scores}
    assert (strongest["m0"], strongest["m198"], strongest["m299"]) == (1.0, 100.0, None)
    assert {score.necessity_nats for score in result.scores} == {None}


def test_a_removal_that_was_never_replayed_is_not_called_cleared(found):
    unchecked = dataclasses.replace(found, checked={})
    assert {event.verdict for event in tenant_result(unchecked, CONFIG).events} == {"not examined"}
    assert {probe.kept for probe in tenant_result(unchecked, CONFIG).probes} == {None}


def test_harm_that_stays_without_the_removed_set_is_not_called_cleared(found):
    removed = found.removal.ids
    pair_ids = {
        event_id: leave_out(event_id, "removal", "text", removed).pair_id for event_id in found.search.states
    }  # fmt: skip
    assert all(found.checked[pair_id].harm == 0.0 for pair_id in pair_ids.values())
    still = {
        pair_id: dataclasses.replace(outcome, harm=1.0) if pair_id in pair_ids.values() else outcome
        for pair_id, outcome in found.checked.items()
    }
    result = tenant_result(dataclasses.replace(found, checked=still), CONFIG)
    assert {event.verdict for event in result.events} == {"not cleared"}
    assert all(event.reason for event in result.events)
