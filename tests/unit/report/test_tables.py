"""Findings as Parquet: each tenant comes back as it was, alone, and a file that breaks a rule is refused by name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.errors import UsageError
from memory_audit.jobs.run.run_findings import RunFindings, within, write_part
from memory_audit.parquet import RowGroups
from memory_audit.report import tables
from memory_audit.report.tables import KINDS, MAX_NUMBER, write_findings
from memory_audit.result import EventFinding, GraphEdge, QuarantineCheck, TenantResult, single
from tests.unit.report.hostile import ANSI, BIDI, ZERO_WIDTH, hostile_result, markup
from tests.unit.report.sample import sample_result
from tests.unit.report.test_lineage import with_lineage

CHECK = QuarantineCheck(harmful=("e-9",), probes_lost=())


def written(folder, tenants):
    """Write one part, and return the summaries and the run's reader of it."""
    (folder / "findings").mkdir(exist_ok=True)
    summaries, files = write_part(tenants, lambda name, data: (folder / name).write_bytes(data))
    result = replace(sample_result(), tenants=tuple(summaries), files=files)
    return summaries, RunFindings(folder, result)


def path_of(folder, kind):
    (path,) = (folder / "findings").glob(f"{kind}*.parquet")
    return path


@pytest.mark.parametrize(
    "tenants",
    [
        sample_result().tenants,
        with_lineage("quarantine", probes_lost=("p-1",), quarantine=CHECK)[0].tenants,
        with_lineage("report")[0].tenants[::-1],
        hostile_result([*markup("x:"), BIDI, ANSI, ZERO_WIDTH, "\x00", ""]).tenants,
    ],
)
def test_each_tenant_comes_back_as_it_was(tmp_path, tenants):
    summaries, read = written(tmp_path, tenants)
    assert [read(summary) for summary in reversed(summaries)] == list(tenants)[::-1]


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
HARM = st.none() | st.floats(0, 1)
EVENT = st.builds(
    EventFinding, event_id=TEXT, query=TEXT, output_observed=TEXT, output_before=st.none() | TEXT, harm_before=HARM,
    output_after=st.none() | TEXT, harm_after=HARM, harm_without_memory=HARM, reason=TEXT, p_value=HARM,
    retrieved=st.lists(TEXT, max_size=3).map(tuple), causes=st.lists(TEXT, max_size=2).map(tuple),
    retrieved_after=st.none() | st.lists(TEXT, max_size=2).map(tuple), retrieved_reconstructed=st.booleans(),
)  # fmt: skip
EDGE = st.builds(
    GraphEdge, a=TEXT, b=TEXT, similarity=st.floats(-1, 1, width=32), contradiction=st.floats(0, 1, width=32)
)
TENANT = st.builds(
    TenantResult, tenant=TEXT, entries=st.integers(0, 10**9), removal=st.just(RemovalSet()), probes=st.just(()),
    events=st.lists(EVENT, max_size=3).map(tuple), edges=st.lists(EDGE, max_size=4).map(tuple), scores=st.just(()),
    cost=st.dictionaries(TEXT, st.integers(0, 10**9), max_size=2), lineage=st.none(), texts=st.just(()),
)  # fmt: skip


@settings(max_examples=60)
@given(tenants=st.lists(TENANT, max_size=4, unique_by=lambda tenant: tenant.tenant))
def test_any_findings_come_back(tmp_path_factory, tenants):
    summaries, read = written(tmp_path_factory.mktemp("part"), tenants)
    assert [read(summary) for summary in summaries] == tenants


def test_one_tenant_is_read_without_the_others(tmp_path):
    summaries, read = written(tmp_path, sample_result().tenants)
    groups, real = [], RowGroups.read

    def noted(self, wanted):
        groups.append(wanted)
        return real(self, wanted)

    with patch.object(RowGroups, "read", noted):
        read(summaries[1])
    assert groups == [[1]] * 5  # one of each kind that there is


def test_the_files_are_plain_parquet_that_says_what_goes(tmp_path):
    written(tmp_path, sample_result().tenants)
    rows = pq.read_table(path_of(tmp_path, "scores")).to_pylist()
    removed = {(row["tenant"], row["entry_id"]) for row in rows if row["removed"]}
    assert removed == {(tenant.tenant, name) for tenant in sample_result().tenants for name in tenant.removal.removed}
    assert not list((tmp_path / "findings").glob("lineage*"))


def test_numbers_are_rounded_where_they_are_found():
    assert single(0.1) != 0.1
    assert single(single(0.1)) == single(0.1)
    assert single(None) is None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_number_that_no_drawing_could_hold_is_not_written(number):
    tenant = sample_result().tenants[0]
    scores = (replace(tenant.scores[0], ds=number), *tenant.scores[1:])
    with pytest.raises(UsageError, match=r"findings/scores00.parquet: cannot be written \(a number"):
        write_findings("findings/00", [replace(tenant, scores=scores)])


def test_half_a_character_is_not_written():
    tenant = sample_result().tenants[0]
    with pytest.raises(UsageError, match=r"events00\.parquet: cannot be written"):
        write_findings("findings/00", [replace(tenant, events=(replace(tenant.events[0], query="\ud800"),))])


def test_a_number_beyond_the_bound_is_not_read(tmp_path):
    tenant = sample_result().tenants[0]
    with patch.object(tables, "MAX_NUMBER", 1e30):
        (summary,), read = written(tmp_path, [replace(tenant, edges=(replace(tenant.edges[0], similarity=1e20),))])
    assert MAX_NUMBER < 1e20
    with pytest.raises(UsageError, match="its edges are not readable"):
        read(summary)


@pytest.mark.parametrize("kind", ["scores", "edges", "events", "probes", "texts", "trust", "descendants", "lineage"])
def test_a_file_that_was_changed_is_refused(tmp_path, kind):
    (summary, _), read = written(tmp_path, with_lineage("quarantine")[0].tenants)
    path = path_of(tmp_path, kind)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UsageError, match=rf"{kind}\w+.parquet: not the one that result.json states"):
        read(summary)


def test_a_file_that_is_missing_is_named(tmp_path):
    (summary, _), read = written(tmp_path, sample_result().tenants)
    path_of(tmp_path, "edges").unlink()
    with pytest.raises(UsageError, match=r"edges\w+.parquet: cannot be read \(No such file or directory\)"):
        read(summary)


def other_scores(tenant):
    return replace(tenant, scores=tenant.scores[1:])


def other_descendants(tenant):
    lineage = replace(tenant.lineage, descendants=tenant.lineage.descendants[:1])
    return replace(tenant, lineage=lineage)


def no_path(tenant):
    first, *rest = tenant.lineage.descendants
    return replace(tenant, lineage=replace(tenant.lineage, descendants=(replace(first, path=()), *rest)))


def no_entries(tenant):
    return replace(tenant, lineage=replace(tenant.lineage, entries=()))


def other_removal(tenant):
    return replace(tenant, removal=RemovalSet())


def other_events(tenant):
    return replace(tenant, events=tenant.events[1:])


def other_name(tenant):
    return replace(tenant, tenant="other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_scores, r"the removal names 'tick-\d+', which has no score"),
        (other_descendants, "the removal has other descendants to quarantine than the lineage"),
        (no_path, r"the path of the descendant 'tick-\d+' is empty"),
        (no_entries, r"the lineage lacks 'tick-\d+', which is to be removed"),
        (other_removal, r"removed is not what the removal says of 'tick-\d+'"),
        (other_events, "its events and probes come to another tally than result.json states"),
        (other_name, "are of another tenant"),
    ],
)
def test_findings_that_are_not_those_of_the_summary_are_refused(tmp_path, change, message):
    tenant = with_lineage("quarantine")[0].tenants[0]
    (summary,), _ = written(tmp_path, [tenant])
    (other,), changed = written(tmp_path, [change(tenant)])
    result = replace(sample_result(), tenants=(replace(summary, part=other.part),), files=changed._digests)
    read = RunFindings(tmp_path, result)
    with pytest.raises(UsageError, match=message):
        read(result.tenants[0])


@pytest.mark.parametrize(
    ("field", "value"),
    [("verdict", "fine"), ("retrieved_reconstructed", None), ("event_id", None), ("retrieved", None)],
)
def test_a_value_of_another_type_is_refused(tmp_path, field, value):
    tenant = sample_result().tenants[0]
    changed = replace(tenant, events=(replace(tenant.events[0], **{field: value}), *tenant.events[1:]))
    (summary,), read = written(tmp_path, [changed])
    with pytest.raises(UsageError, match=rf"events\[0\].{field} is '?{value}'?, expected"):
        read(summary)


def test_findings_of_a_group_are_read_where_they_lie(tmp_path):
    group = tmp_path / "groups" / "6d-a1"
    group.mkdir(parents=True)
    summaries, read = written(group, sample_result().tenants)
    result = within(replace(sample_result(), tenants=tuple(summaries), files=read._digests), "groups/6d-a1")
    assert [RunFindings(tmp_path, result)(tenant) for tenant in result.tenants] == list(sample_result().tenants)


def test_the_columns_are_those_that_the_docs_name():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text()
    told = {
        kind: re.findall(r"`(\w+)`", columns)
        for kind, columns in re.findall(r"^\| `(\w+)` \| a[^|]* \| (`[^|]*`) \|$", page, re.MULTILINE)
    }
    assert {kind: ["tenant", *told[kind]] for kind in KINDS} == {kind: tables._schema(kind).names for kind in KINDS}
