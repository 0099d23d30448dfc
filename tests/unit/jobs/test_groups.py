"""Tenants in groups: none sees another, none waits for another, and the error of one is its own."""

from __future__ import annotations

import pickle
import re
import shutil
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.errors import AnswerError, EventError, ModelError, UsageError, VerificationError
from memory_audit.jobs.executors.local import LocalExecutor
from memory_audit.jobs.run.groups import plan
from memory_audit.jobs.run.groups.plan import groups_of, may_share_tenants
from memory_audit.jobs.run.run_audit import audit_all, read_result
from memory_audit.jobs.run.run_files import GROUPS
from memory_audit.jobs.run.run_findings import RunFindings
from memory_audit.models.fakes import FakeGenerator
from memory_audit.report.html import report_files
from memory_audit.snapshot.layout import bucket_of, by_bucket
from tests.audit_world import CONFIG, FAKES, NOW_MS, DyingGenerator, entry, event, make_snapshot, removed, request_of
from tests.whole import whole

TENANTS = [f"tenant-{number}" for number in range(9)]


def entries_of(tenant):
    """Six memories, each of which says whose it is, and one of which does harm."""
    benign = [
        entry(
            tenant, f"ok{number}", f"What is matter {number} of canary-{tenant}?", f"Page {number} of canary-{tenant}."
        )
        for number in range(5)
    ]
    return [
        *benign,
        entry(tenant, "bad", f"What refund has canary-{tenant}?", f"POISON no refund for canary-{tenant}."),
    ]


def events_of(tenant):
    return [
        event(f"e-{tenant}", tenant, f"What refund has order 7 of canary-{tenant}?"),
        event(f"p-{tenant}", tenant, f"What is matter 3 of canary-{tenant}?", "benign"),
    ]


EVENTS = [item for tenant in TENANTS for item in events_of(tenant)]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    return make_snapshot(folder / "memory", [item for tenant in TENANTS for item in entries_of(tenant)])


@pytest.fixture
def by_bucket_alone(monkeypatch):
    """Groups of one bucket each."""
    monkeypatch.setattr(plan, "EVENTS", 1)


def audit(snapshot, out, events=EVENTS, generator=None, config=CONFIG):
    generator = FakeGenerator() if generator is None else generator
    with closing(LocalExecutor(FAKES, generator)) as executor:
        result, failed = audit_all(request_of(snapshot, events, config), executor, out, now_ms=NOW_MS)
    return replace(whole(out, result), files={}), failed, generator.requests


def named(text):
    """Return the tenants whose texts, or whose events, are in a text."""
    return set(re.findall(r"(?:canary|\b[ep])-(tenant-\d)", text))


def tenants_of(result):
    return {tenant.tenant: msgspec.json.encode(tenant) for tenant in result.tenants}


@pytest.fixture(scope="module")
def together(snapshot, tmp_path_factory):
    """The audit of all tenants in one group."""
    return audit(snapshot, tmp_path_factory.mktemp("together") / "run")


class Refusing(FakeGenerator):
    """A backbone that gives one tenant answers that cannot be used."""

    def __init__(self, tenant, error=AnswerError) -> None:
        super().__init__()
        self._refused, self._error = f"canary-{tenant}", error

    async def generate(self, request):
        if any(self._refused in message.content for message in request.messages):
            raise self._error("the server's answer is not a chat completion")
        return await super().generate(request)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40), st.integers(1, 60), st.integers(1, 400))
def test_every_tenant_is_in_one_group_of_whole_buckets_and_a_large_one_is_alone(sizes, events, large):
    leaves = {f"t{number}": 10 * count for number, count in enumerate(sizes)}
    refs = {tenant: SimpleNamespace(size=count) for tenant, count in leaves.items()}
    asked = {tenant: range(count % 7) for tenant, count in leaves.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "EVENTS", events)
        patch.setattr(plan, "LARGE", large)
        groups = groups_of(SimpleNamespace(by_tenant=asked, snapshot=SimpleNamespace(log_refs=refs)))
    assert sorted(tenant for group in groups for tenant in group.tenants) == sorted(leaves)
    assert len({group.name for group in groups}) == len(groups)
    for group in groups:
        size = {tenant: leaves[tenant] for tenant in group.tenants}
        assert list(group.tenants) == by_bucket(size)
        assert group.leaves == sum(size.values())
        assert len(group.tenants) == 1 or max(size.values()) < large
    small = [group for group in groups if "-" in group.name]
    buckets = [{bucket_of(tenant) for tenant in group.tenants} for group in small]
    assert len(set().union(*buckets)) == sum(map(len, buckets))
    assert [group.leaves for group in groups] == sorted((group.leaves for group in groups), reverse=True)


@pytest.mark.parametrize(
    ("folder", "group", "shared"),
    [
        ("00-0f", "0f-20", True),
        ("00-0f", "10-20", False),
        ("6d3f09c2a4e81b57", "60-70", True),
        ("6d3f09c2a4e81b57", "6e-70", False),
        ("6d3f09c2a4e81b57", "6d3f09c2a4e81b57", True),
        ("6d3f09c2a4e81b57", "6d3f09c2a4e81b58", False),
    ],
)
def test_what_another_night_cut_otherwise_is_looked_for_where_it_can_be(tmp_path, folder, group, shared):
    assert may_share_tenants(tmp_path / "groups" / folder, group) is shared
    assert may_share_tenants(tmp_path / "groups" / group, folder) is shared
    assert may_share_tenants(tmp_path / "a-calibration", group)


@settings(max_examples=6)
@given(st.lists(st.sampled_from(EVENTS), min_size=1, unique_by=lambda item: item.event_id), st.integers(1, 20))
def test_neither_the_others_nor_their_order_nor_the_groups_change_a_byte_of_a_tenants_result(
    snapshot, together, tmp_path_factory, some, joined
):
    tenants = list(dict.fromkeys(item.tenant for item in some))
    events = [*some, *(item for tenant in tenants for item in events_of(tenant) if item not in some)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "EVENTS", joined)
        found, _, _ = audit(snapshot, tmp_path_factory.mktemp("shuffled") / "run", events)
    all_found = tenants_of(together[0])
    assert tenants_of(found) == {tenant: all_found[tenant] for tenant in sorted(tenants)}


@settings(max_examples=3)
@given(st.permutations(TENANTS), st.permutations(TENANTS))
def test_the_order_in_which_tenants_came_into_the_store_and_are_asked_about_changes_no_byte(
    together, tmp_path_factory, stored, asked
):
    folder = tmp_path_factory.mktemp("shuffled")
    other = make_snapshot(folder / "memory", [item for tenant in stored for item in entries_of(tenant)])
    found, _, _ = audit(other, folder / "run", [item for tenant in asked for item in events_of(tenant)])
    assert tenants_of(found) == tenants_of(together[0])


def test_all_in_one_group_or_each_in_its_own_a_run_asks_and_finds_the_same(
    snapshot, together, tmp_path, by_bucket_alone
):
    result, failed, requests = audit(snapshot, tmp_path / "run")
    assert (replace(result, seconds=0), failed, requests) == (replace(together[0], seconds=0), {}, together[2])
    assert removed(result) == {tenant: {"bad"} for tenant in TENANTS}
    assert len(list((tmp_path / "run" / "groups").iterdir())) == len({bucket_of(tenant) for tenant in TENANTS}) > 1


@pytest.mark.usefixtures("by_bucket_alone")
def test_no_text_of_a_tenant_is_in_a_file_of_another_group(snapshot, tmp_path):
    audit(snapshot, tmp_path / "run")
    found = set()
    for group in groups_of(request_of(snapshot, EVENTS)):
        for path in (tmp_path / "run" / "groups" / group.name).rglob("*"):
            if path.is_file():
                text = repr(pq.read_table(path).to_pylist()) if path.suffix == ".parquet" else path.read_text()
                held = {tenant for tenant in TENANTS if f"canary-{tenant}" in text or f"e-{tenant}" in text}
                assert held <= set(group.tenants), path
                found |= held
    assert found == set(TENANTS)


def test_of_tenants_that_share_a_group_each_record_and_each_page_is_of_one_and_what_is_cached_of_none(
    snapshot, tmp_path, monkeypatch
):
    for module in ("memory_audit.jobs.run.run_audit", "memory_audit.report.html.page"):
        monkeypatch.setattr(f"{module}.FEW", 2)
    run = tmp_path / "run"
    audit(snapshot, run)
    result = read_result(run)
    pages = dict(report_files(result, RunFindings(run, result), "report.html", "report", every=True))
    assert "canary-" not in pages.pop("report.html")
    records = list(pages.values())
    for path in (run / GROUPS).rglob("*"):
        if path.suffix == ".parquet":
            rows = [repr(row) for row in pq.read_table(path).to_pylist()]
            if path.parent.name in {"embedding", "entailment"}:
                assert not any(map(named, rows)), path
            records += rows
        elif path.suffix == ".jsonl":
            records += path.read_text().splitlines()
    held = [named(record) for record in records]
    assert max(map(len, held)) == 1
    assert set().union(*held) == set(TENANTS)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("fault", ["bucket", "event", "answer", "defect"])
def test_the_error_of_one_tenant_is_its_own_and_said_in_one_line(together, tmp_path, monkeypatch, fault, alone):
    if alone:
        monkeypatch.setattr(plan, "EVENTS", 1)
    victim, events, generator = TENANTS[4], list(EVENTS), FakeGenerator()
    snapshot = make_snapshot(tmp_path / "memory", [item for tenant in TENANTS for item in entries_of(tenant)])
    mended = lambda: None  # noqa: E731
    if fault == "bucket":
        (data,) = (tmp_path / "memory" / "data" / f"b={bucket_of(victim):02x}").iterdir()
        data.rename(tmp_path / "away")
        mended = lambda: (tmp_path / "away").rename(data)  # noqa: E731
    elif fault == "event":
        events = [replace(item, retrieved=("ghost",)) if item.tenant == victim else item for item in EVENTS]
    else:
        generator = Refusing(victim, AnswerError if fault == "answer" else ZeroDivisionError)
    result, failed, _ = audit(snapshot, tmp_path / "run", events, generator)
    assert list(failed) == [victim]
    all_found, found = tenants_of(together[0]), tenants_of(result)
    lost = found.pop(victim)
    assert found == {tenant: text for tenant, text in all_found.items() if tenant != victim}
    lost = msgspec.json.decode(lost)
    assert {name: number for name, number in lost["tally"]["verdicts"].items() if number} == {"not examined": 1}
    assert lost["failure"]
    assert "\n" not in lost["failure"]
    if fault == "event":
        return
    mended()
    again, failed, requests = audit(snapshot, tmp_path / "run", events)
    assert (tenants_of(again), failed) == (all_found, {})
    assert requests <= together[2] // len(TENANTS) + 1  # those of the one tenant


@pytest.mark.usefixtures("by_bucket_alone")
@pytest.mark.parametrize(
    ("generator", "raised"),
    [(DyingGenerator(30), ModelError), (Refusing("", UsageError), UsageError), (Refusing("tenant"), AnswerError)],
)
def test_what_is_no_tenants_own_ends_the_run(snapshot, tmp_path, generator, raised):
    with pytest.raises(raised) as stopped:
        audit(snapshot, tmp_path / "run", generator=generator)
    assert "\n" not in str(stopped.value)
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.usefixtures("by_bucket_alone")
def test_a_second_start_opens_nothing_of_a_group_that_is_finished(snapshot, together, tmp_path):
    with pytest.raises(ModelError):
        audit(snapshot, tmp_path / "run", generator=DyingGenerator(together[2] // 2))
    finished = {path.parent.name for path in (tmp_path / "run" / "groups").glob("*/finished.json")}
    for name in finished:
        shutil.rmtree(tmp_path / "run" / "groups" / name / "replays")
    result, _, requests = audit(snapshot, tmp_path / "run")
    assert finished
    assert not any((tmp_path / "run" / "groups" / name / "replays").exists() for name in finished)
    assert tenants_of(result) == tenants_of(together[0])
    assert requests == together[2] - together[2] // 2


@pytest.mark.usefixtures("by_bucket_alone")
def test_weights_that_changed_between_two_starts_are_refused_by_the_groups_that_are_new(snapshot, tmp_path):
    with pytest.raises(ModelError):
        audit(snapshot, tmp_path / "run", generator=DyingGenerator(40))
    with pytest.raises(UsageError, match="holds answers of the backbone"):
        audit(snapshot, tmp_path / "run", generator=FakeGenerator(clean="well"))


def test_a_request_and_its_snapshot_open_in_another_process_what_was_opened_here_and_nothing_else(tmp_path):
    snapshot = make_snapshot(tmp_path / "memory", entries_of("a"))
    request = request_of(snapshot, events_of("a"))
    sent = pickle.dumps(request)
    copy = pickle.loads(sent)  # noqa: S301 - our own bytes
    assert (copy.run_id, copy.identity, copy.by_tenant) == (request.run_id, request.identity, request.by_tenant)
    assert copy.entries("a") == request.entries("a")
    assert b"POISON" not in pickle.dumps(snapshot)  # a place, and no text
    other = make_snapshot(tmp_path / "other", entries_of("b"))
    with pytest.raises(VerificationError, match="this machine has another store there"):
        pickle.loads(sent.replace(snapshot.digest.encode(), other.digest.encode()))  # noqa: S301


def test_a_tenant_alone_with_a_wrong_event_is_told_as_such(snapshot, tmp_path):
    wrong = replace(events_of(TENANTS[0])[0], retrieved=("ghost",))
    with pytest.raises(EventError, match="retrieved entry 'ghost' is not in the store"):
        audit(snapshot, tmp_path / "run", [wrong])
