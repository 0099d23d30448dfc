"""The terminal report: what it says, and that no text from memory steers the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.report.summary import removed_of
from memory_audit.report.table import MAX_ROWS, MAX_TENANTS
from tests.unit.report.hostile import ANSI, BIDI, LONG, ZERO_WIDTH, hostile_result, markup
from tests.unit.report.sample import sample_result
from tests.whole import table_of


def printed(result, *, color=False, width=200):
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=color, color_system="truecolor" if color else None).print(
        table_of(result)
    )
    return out.getvalue()


def test_the_verdict_comes_first_then_each_tenant():
    text = printed(sample_result())
    assert text.startswith("Removing 8 memories ends the harm in 6 of 8 events that did harm on replay; 1 event did")
    assert text.index("Tenant harbor-clinic") < text.index("Tenant northwind-support")  # the one with harm left first
    assert "3 of 46 entries to remove; harm in 4 of 4 replayed events before, 0 after; 3 of 3 probes kept" in text
    assert "2 after (1 event did no harm on replay and tells nothing; 1 event was not examined); 1 of 2 probes" in text
    assert "not examined: event c-40: replay budget of 400 was spent" in text
    assert "replays 388" in text


def test_scores_are_named_plainly_first_and_by_the_papers_symbols_second():
    lines = printed(sample_result()).splitlines()
    first = next(number for number, line in enumerate(lines) if "influ-" in line)
    columns = zip(*(line.strip("┃").split("┃") for line in lines[first : first + 3]), strict=True)
    names = ["".join(part.strip() for part in column) for column in columns]
    assert names[:4] == ["rank", "influ-enceCMIS", "incon-sistencyCAS", "scoreDS"]


def test_unknown_harm_is_not_shown_as_zero():
    row = next(line for line in printed(sample_result()).splitlines() if "c-40" in line and "│" in line)
    assert "unknown → unknown" in row


def test_reasons_stand_below_the_table_where_the_verdict_does_not_say_it_all():
    lines = printed(sample_result()).splitlines()
    assert "c-40: replay budget of 400 was spent" in lines
    assert not [line for line in lines if line.startswith("c-17: ")]


def test_a_probe_whose_answer_changes_is_named():
    result = sample_result()
    lost = [probe.event_id for probe in result.tenants[0].probes]
    changed = tuple(replace(probe, kept=False) for probe in result.tenants[0].probes)
    lines = printed(replace(result, tenants=(replace(result.tenants[0], probes=changed),))).splitlines()
    assert [line.rstrip() for line in lines if line.startswith("probe ")] == [
        f"probe {n}: its answer changes" for n in lost
    ]


@pytest.mark.parametrize("event_id", ["tidewater-01", "1b4e28ba-2fa1-11d2-883f-0016d3cca427"])
def test_ids_stay_in_one_piece_on_80_columns(event_id):
    result = sample_result()
    tenant = result.tenants[1]
    events = tuple(
        replace(event, event_id=event_id, causes=("note-021", "note-022", "note-024")) for event in tenant.events
    )
    lines = printed(replace(result, tenants=(replace(tenant, events=events),)), width=80).splitlines()
    assert sum(f"│ {event_id} " in line for line in lines) == len(events)
    for name in ("note-021", "note-022", "note-023", "note-024", "note-026"):
        assert [line for line in lines if f"│ {name} │" in line]
    assert max(map(len, lines)) <= 80


def test_hostile_text_leaves_no_escape_on_the_terminal():
    text = printed(hostile_result([ANSI, BIDI, ZERO_WIDTH, LONG, "[red]rich[/red] [link=x]", *markup("x:")]))
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\ufeff"} & set(text)
    assert "<U+001B>" in text
    assert "[red]rich[/red]" in text
    assert len(text) < 300_000


def test_colours_are_those_of_the_report_only():
    hostile = printed(hostile_result([ANSI]), color=True)
    assert "\x1b[2J" not in hostile
    assert "\x1b]0" not in hostile
    assert "\x1b[1;31m" in hostile


def test_long_lists_say_what_is_left_out():
    result = sample_result()
    tenant = result.tenants[0]
    events = tuple(replace(tenant.events[0], event_id=f"e-{i}") for i in range(MAX_ROWS + 7))
    assert "… 7 more events" in printed(replace(result, tenants=(replace(tenant, events=events),)))


@pytest.mark.parametrize("width", [40, 80])
def test_narrow_terminals_still_name_every_removed_entry(width):
    letters = "".join(character for character in printed(sample_result(), width=width) if character.isalnum())
    assert "Removing8memories" in letters


def test_a_cut_list_keeps_the_event_and_the_tenant_with_harm_left():
    result = sample_result()
    tenant = result.tenants[0]
    events = tuple(replace(tenant.events[0], event_id=f"e-{i}") for i in range(MAX_ROWS))
    stays = replace(tenant.events[0], event_id="e-last", verdict="not cleared")
    text = printed(replace(result, tenants=(replace(tenant, events=(*events, stays)),)))
    assert "e-last" in text
    assert "… 1 more events" in text
    quiet = tuple(
        replace(tenant, tenant=f"a-{i}", removal=RemovalSet(), events=(replace(stays, verdict="not reproduced"),))
        for i in range(MAX_TENANTS)
    )
    text = printed(replace(result, tenants=(*quiet, replace(tenant, tenant="zed"))))
    assert "Tenant zed" in text
    assert "… 1 more tenants" in text


@pytest.mark.parametrize(
    ("cmis", "shown"),
    [
        (-1.234e-05, ">-0.001"),
        (2.3e-16, "<0.001"),
        (0.0, "0"),
        (-0.0123, "-0.0123"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
    ],
)
def test_no_score_is_cut_inside_the_number_on_80_columns(cmis, shown):
    result = sample_result()
    tenant = result.tenants[0]
    name = "ticket-2024-11-000000001"
    scores = tuple(replace(s, entry_id=name, cmis=cmis, cas=0.0123) for s in removed_of(tenant))
    removal = RemovalSet(attributed={name: "why"})
    texts = (replace(tenant.texts[0], entry_id=name, principal="support-bot-eu-west-7"),)
    tenant = replace(tenant, scores=scores, removal=removal, texts=texts)
    lines = printed(replace(result, tenants=(tenant,)), width=80)
    assert f" {shown} │" in next(line for line in lines.splitlines() if name in line)
