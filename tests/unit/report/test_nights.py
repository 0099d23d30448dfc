"""Nights side by side: what is new, known and back, by id and by text, in the table and on the page."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.errors import UsageError
from memory_audit.report.html import render_nights
from memory_audit.report.nights import Night, compare, nights_headline
from memory_audit.report.table import nights_table
from tests.unit.report.hostile import ANSI, BIDI, LONG, ZERO_WIDTH, markup
from tests.unit.report.sample import sample_result
from tests.unit.report.test_html import outline
from tests.whole import summed

SAMPLE = sample_result()
DAY_MS = 86_400_000


def night(number, named, *, texts=None, taken=(), present=(), tenant="acme", quiet=("globex",)):
    """A run that proposes to remove what is named, id to reason, of one tenant; of others it has nothing to say."""
    base = SAMPLE.tenants[0]
    removal = RemovalSet(attributed=dict.fromkeys(named, "why"))
    held = replace(base, tenant=tenant, removal=removal, cost={"replays": 10 * number})
    still = [
        replace(base, tenant=name, removal=RemovalSet(), probes=(), not_examined=(),
                events=tuple(replace(event, verdict="not reproduced") for event in base.events))
        for name in quiet
    ]  # fmt: skip
    tenants = tuple(sorted((held, *still), key=lambda found: found.tenant))
    result = replace(SAMPLE, tenants=tenants, started_ms=SAMPLE.started_ms + number * DAY_MS, run_id=f"run-{number}")
    known = {name: f"text of {name}" for name in named} if texts is None else texts
    return Night(
        name=f"night-{number}", result=summed(result)[0], texts={tenant: known}, taken={tenant: set(taken)},
        present={tenant: set(present)},
    )  # fmt: skip


def states(nights):
    return {item.entry_id: item.state for item in nights.last}


def test_what_is_named_for_the_first_time_is_new_and_then_known():
    nights = compare([night(2, ["m1", "m2"]), night(1, ["m1"])])
    assert [total.name for total in nights.totals] == ["night-1", "night-2"]
    assert states(nights) == {"m1": "known", "m2": "new"}
    assert [(total.new, total.known, total.back) for total in nights.totals] == [(1, 0, 0), (1, 1, 0)]
    assert [cell.named for cell in nights.cells["acme"]] == [1, 2]
    assert [cell.named for cell in nights.cells["globex"]] == [0, 0]


def test_what_was_taken_out_and_is_named_again_is_back_by_id_or_by_text():
    again = night(2, ["m1", "m9"], texts={"m1": "other", "m9": "text of m2"})
    nights = compare([night(1, ["m1", "m2"], taken=["m1", "m2"]), again])
    assert states(nights) == {"m1": "back", "m9": "back"}
    found = {item.entry_id: (item.as_id, item.since) for item in nights.last}
    assert found == {"m1": ("m1", 0), "m9": ("m2", 0)}
    assert nights.totals[0].taken == 2


def test_what_was_taken_out_and_is_only_seen_again_is_back_though_nobody_names_it():
    nights = compare([night(1, ["m1"], taken=["m1"]), night(2, [], present=["m1", "m5"])])
    assert [(item.entry_id, item.state, item.reason) for item in nights.last] == [("m1", "back", "")]
    assert nights.cells["acme"][1].named == 0
    assert nights.cells["acme"][1].back == 1


def test_what_came_back_and_stayed_is_known_from_then_on():
    nights = compare([night(1, ["m1"], taken=["m1"]), night(2, ["m1"]), night(3, ["m1"])])
    assert [(total.new, total.known, total.back) for total in nights.totals] == [(1, 0, 0), (0, 0, 1), (0, 1, 0)]


def test_what_is_taken_out_of_one_tenant_is_not_back_in_another():
    nights = compare([night(1, ["m1"], taken=["m1"]), night(2, ["m1"], tenant="globex", quiet=("acme",))])
    assert states(nights) == {"m1": "new"}


def test_a_night_without_a_tenant_has_no_cell():
    nights = compare([night(1, ["m1"]), night(2, ["m1"], tenant="zeta")])
    assert nights.cells["acme"][1] is None
    assert nights.cells["zeta"][0] is None


def test_nights_of_two_stores_are_refused():
    other = night(2, [])
    other = replace(other, result=replace(other.result, store="another"))
    with pytest.raises(UsageError, match="runs of 2 stores: nights are those of one"):
        compare([night(1, []), other])


def test_the_headline_says_what_the_last_night_brought():
    nights = compare([night(1, ["m1", "m2"], taken=["m1"]), night(2, ["m1", "m2", "m3"])])
    assert nights_headline(nights) == ("bad", "The last night shows 3 memories in 1 tenant: 1 back, 1 new, 1 known.")
    assert nights_headline(compare([night(1, [])]))[1] == "The last night names no memory."


def test_the_page_has_plots_the_table_of_nights_and_what_is_back_first():
    nights = compare([night(1, ["m1", "m2"], taken=["m1"]), night(2, ["m1", "m2", "m3"])])
    page = render_nights(nights)
    assert page == render_nights(nights)
    assert page.count("<polyline ") == 5
    body = page.partition("<h2>The last night</h2>")[2]
    assert re.findall(r"<tr><td><code>(m\d)</code></td><td><span class=\"badge \w+\">(\w+)", body) == [
        ("m1", "back"), ("m3", "new"), ("m2", "known"),
    ]  # fmt: skip
    assert "1 tenant needs no person on any night" in page
    outline(page)


HOSTILE = [*markup("http://attacker.example/"), BIDI, ANSI, ZERO_WIDTH, LONG]


def test_hostile_names_add_no_tag_and_no_attribute():
    calm = outline(render_nights(compare([night(1, ["m1"], taken=["m1"]), night(2, ["m1", "m2"])])))
    nights = compare([
        replace(night(1, HOSTILE, taken=HOSTILE[:3], tenant=HOSTILE[0], quiet=HOSTILE[1:3]), name=HOSTILE[4]),
        replace(night(2, HOSTILE, tenant=HOSTILE[0], quiet=HOSTILE[1:3]), name=HOSTILE[5]),
    ])  # fmt: skip
    page = render_nights(nights)
    hostile = outline(page)
    assert set(hostile.tags) <= set(calm.tags)
    assert {(tag, name) for tag, name, _ in hostile.attributes} <= {(tag, name) for tag, name, _ in calm.attributes}
    assert not {"\u202e", "\x1b", "\u200b", "\ufeff"} & set(page)
    text = io.StringIO()
    Console(file=text, width=200).print(nights_table(nights))
    assert "<U+202E>" in text.getvalue()
    assert "\x1b" not in text.getvalue()
