"""What an audit measured, turned into what it found: on a finished search with the fakes."""

from __future__ import annotations

import dataclasses

import pytest

from audit.attribution.ablation import leave_out
from jobs.findings import influence_scores, rank, tenant_result
from models.fakes import FakeGenerator
from tests.audit_world import CONFIG, PLANTED, make_snapshot, run_local


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The evidence of tenant globex, caught on its way into the result."""
    caught = {}

    def keep(evidence, config):
        caught[evidence.tenant] = evidence
        return tenant_result(evidence, config)

    folder = tmp_path_factory.mktemp("findings")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.audit_memory.tenant_result", keep)
        run_local(make_snapshot(folder / "memory"), folder / "run", generator=FakeGenerator())
    return caught["globex"]


def test_influence_is_highest_for_the_planted_entries_and_absent_where_nothing_was_measured(found):
    influence = influence_scores(found)
    planted = PLANTED["globex"]
    assert min(influence[name] for name in planted) > max(
        (value for name, value in influence.items() if name not in planted), default=0.0
    )
    assert set(influence) < {entry.entry_id for entry in found.memory.entries}


def test_alpha_one_ranks_by_influence_alone_and_alpha_zero_by_anomaly_alone(found):
    influence = influence_scores(found)
    by_influence = [score.entry_id for score in rank(found, influence, 1.0)]
    assert set(by_influence[: len(PLANTED["globex"])]) == PLANTED["globex"]
    by_anomaly = rank(found, influence, 0.0)
    assert [score.ds for score in by_anomaly] == [score.cas_normalised for score in by_anomaly]


def test_a_removal_that_was_never_replayed_is_not_called_cleared(found):
    unchecked = dataclasses.replace(found, checked={})
    assert {event.verdict for event in tenant_result(unchecked, CONFIG).events} == {"not examined"}
    assert {probe.kept for probe in tenant_result(unchecked, CONFIG).probes} == {None}


def test_harm_that_stays_without_the_removed_set_is_not_called_cleared(found):
    removed = frozenset(found.removed)
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
