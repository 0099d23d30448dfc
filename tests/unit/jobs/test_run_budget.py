"""A budget of replays of a whole run: it is met, what it leaves out is named, and a larger one goes on."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.config import AuditConfig
from memory_audit.errors import AnswerError, BudgetError, ModelError, UsageError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.audit_memory import most_checks
from memory_audit.jobs.run.groups import plan
from memory_audit.jobs.run.groups.budget import Turns
from memory_audit.jobs.run.run_audit import audit_all
from memory_audit.jobs.run.run_findings import RunFindings
from memory_audit.models.fakes import FakeGenerator
from memory_audit.report.html import report_files
from memory_audit.report.json import to_json
from memory_audit.report.summary import headline
from memory_audit.request import TenantEvents
from tests.audit_world import (
    CONFIG,
    FAKES,
    NOW_MS,
    DyingGenerator,
    event,
    harmful_events,
    make_snapshot,
    request_of,
)
from tests.whole import whole

ENOUGH = 10_000
EVENTS = [*harmful_events(), event("e4", "initech", "What is the refund window for order 4?")]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    return make_snapshot(tmp_path_factory.mktemp("store") / "memory")


@pytest.fixture(scope="module", autouse=True)
def by_bucket_alone():
    """Groups of one bucket each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "EVENTS", 1)
        yield


def audit(snapshot, out, budget, generator=None, max_replays=None):
    generator = FakeGenerator() if generator is None else generator
    request = request_of(snapshot, EVENTS, replace(CONFIG, max_run_replays=budget, max_replays=max_replays))
    with closing(LocalExecutor(FAKES, generator)) as executor:
        result, failed = audit_all(request, executor, out, now_ms=NOW_MS)
    return replace(result, seconds=0.0), failed


def replays(result) -> int:
    return result.counters.get("replays", 0)


@pytest.fixture(scope="module")
def unbounded(snapshot, tmp_path_factory):
    return audit(snapshot, tmp_path_factory.mktemp("unbounded") / "run", None)[0]


def test_a_budget_that_is_enough_changes_nothing(snapshot, unbounded, tmp_path):
    result, failed = audit(snapshot, tmp_path / "run", ENOUGH)
    assert not failed
    assert to_json(result) == to_json(unbounded)


@pytest.mark.parametrize("budget", [1, 9, 14, 20, 33, 40, 43])
def test_a_budget_is_met_and_what_it_leaves_out_is_named(snapshot, unbounded, tmp_path, budget):
    result, failed = audit(snapshot, tmp_path / "run", budget)
    assert replays(result) <= budget < replays(unbounded)
    assert [tenant.tenant for tenant in result.tenants] == ["acme", "globex", "initech"]
    left = {tenant.tenant: tenant.beyond_budget for tenant in result.tenants if tenant.beyond_budget}
    assert left
    assert left.keys() == failed.keys()
    for tenant, names in left.items():
        assert isinstance(failed[tenant], BudgetError)
        assert str(failed[tenant]) == f"beyond the budget of {budget} replays: {', '.join(names)}"
    unseen = {tenant.tenant for tenant in result.tenants if tenant.failure is not None}
    open_events = {
        found.event_id
        for tenant in whole(tmp_path / "run", result).tenants
        if tenant.tenant not in unseen
        for found in tenant.events
        if found.verdict in {"not examined", "not cleared"}
    } | {item.event_id for item in EVENTS if item.tenant in unseen and item.harm == "harmful"}
    assert {f"event {event_id}" for event_id in open_events} <= {name for names in left.values() for name in names}


def test_the_tenant_with_most_harmful_events_is_served_first(snapshot, tmp_path):
    result, _ = audit(snapshot, tmp_path / "run", 14)
    assert [tenant.tenant for tenant in result.tenants if tenant.cost] == ["globex"]
    result, _ = audit(snapshot, tmp_path / "more", 40)
    assert [tenant.tenant for tenant in result.tenants if tenant.removal.removed] == ["globex"]


def test_a_larger_budget_goes_on_where_the_smaller_one_ended(snapshot, unbounded, tmp_path):
    run, first, second = tmp_path / "run", FakeGenerator(), FakeGenerator()
    audit(snapshot, run, 40, first)
    assert to_json(audit(snapshot, run, ENOUGH, second)[0]) == to_json(unbounded)
    alone = FakeGenerator()
    assert to_json(audit(snapshot, tmp_path / "alone", ENOUGH, alone)[0]) == to_json(unbounded)
    assert first.requests
    assert second.requests
    assert first.requests + second.requests == alone.requests
    asked = FakeGenerator()
    assert to_json(audit(snapshot, run, None, asked)[0]) == to_json(unbounded)
    assert not asked.requests


@pytest.mark.parametrize("answers", [0, 3, 20])
def test_a_run_that_was_stopped_ends_with_what_its_budget_shows(snapshot, tmp_path, answers):
    whole_run = to_json(audit(snapshot, tmp_path / "run", 40)[0])
    with pytest.raises(ModelError):
        audit(snapshot, tmp_path / "stopped", 40, DyingGenerator(answers))
    asked = FakeGenerator()
    assert to_json(audit(snapshot, tmp_path / "stopped", 40, asked)[0]) == whole_run
    again = FakeGenerator()
    assert to_json(audit(snapshot, tmp_path / "stopped", 40, again)[0]) == whole_run
    assert not again.requests
    # Answers that are known already change nothing: a smaller budget shows what it shows.
    smaller, _ = audit(snapshot, tmp_path / "small", 20)
    assert audit(snapshot, tmp_path / "stopped", 20, again)[0].tenants == smaller.tenants
    assert not again.requests


def test_one_tenant_that_fails_takes_no_other_ones_share(snapshot, unbounded, tmp_path):
    class Refusing(FakeGenerator):
        async def generate(self, request):
            if "order 18" in request.messages[-1].content:
                raise AnswerError("no answer that can be used")
            return await super().generate(request)

    result, failed = audit(snapshot, tmp_path / "run", 100, Refusing())
    assert {name: type(error) for name, error in failed.items()} == {"globex": AnswerError}
    of_others = {tenant.tenant: tenant.tally for tenant in unbounded.tenants if tenant.tenant != "globex"}
    assert {tenant.tenant: tenant.tally for tenant in result.tenants if tenant.failure is None} == of_others


def test_reports_say_that_a_budget_was_spent(snapshot, tmp_path):
    result, _ = audit(snapshot, tmp_path / "run", 20)
    assert "A budget of replays was spent before 3 tenants were examined." in headline(result)[1]
    (_, page), *_ = report_files(result, RunFindings(tmp_path / "run", result), "report.html", "report", every=True)
    assert "beyond the budget of 20 replays: event e4" in page
    assert "event e2: budget of " in page


def test_a_tenants_own_budget_is_no_reason_to_go_on(snapshot, tmp_path):
    result, failed = audit(snapshot, tmp_path / "run", ENOUGH, max_replays=5)
    assert not failed
    assert [tenant.tenant for tenant in result.tenants if tenant.beyond_budget] == ["acme", "globex"]
    again, _ = audit(snapshot, tmp_path / "unbounded", None, max_replays=5)
    assert to_json(again) == to_json(result)


def test_a_budget_does_not_make_another_run(snapshot):
    assert AuditConfig(max_run_replays=5).digest() == AuditConfig().digest()
    with pytest.raises(UsageError, match="`loo` has no bound"):
        AuditConfig(max_run_replays=5, attribution="loo")


@given(
    st.dictionaries(
        st.integers(0, 50), st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 200)), min_size=1
    ),
    st.integers(1, 2_000),
)
def test_no_turn_hands_out_more_than_is_left(needs, budget):
    """Tenants here need so many replays each event; one that got fewer is beyond the budget."""
    events = {
        f"t{name}": TenantEvents(harmful=(event("e", "t", "q"),) * harmful, probes=(event("p", "t", "q"),) * probes)
        for name, (harmful, probes, _) in needs.items()
    }
    need = {f"t{name}": harmful * each for name, (harmful, _, each) in needs.items()}
    turns, spent, count = Turns(budget, events), dict.fromkeys(events, 0), 0
    while more := turns.next():
        count += 1
        assert sum(turns.limits[name] - spent[name] for name in more) <= budget - sum(spent.values())
        found = []
        for name in more:
            room = turns.limits[name] - most_checks(events[name])
            spent[name] = min(need[name], room)
            cut = ("event e",) if need[name] > room else ()
            found.append(SimpleNamespace(tenant=name, cost={"replays": spent[name]}, beyond_budget=cut))
        turns.observe(found, ())
    assert count <= 12
    assert sum(spent.values()) <= budget
    assert set(turns.left_out) == {name for name in events if need[name] > spent[name] or name not in turns.limits}
    if budget >= 4 * sum(need[name] + most_checks(events[name]) + 2 * len(events[name].harmful) for name in events):
        assert not turns.left_out
