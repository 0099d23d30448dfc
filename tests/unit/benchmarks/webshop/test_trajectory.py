"""The text of an episode: written and read back, and pages shortened to one bounded line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.attribution.webshop.environment import Visit
from benchmarks.attribution.webshop.trajectory import BRIEF_CHARACTERS, Step, brief, parse, render

LINE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=30)

REAL_ITEM = """[Back to Search]\x20
[< Prev]\x20
size [2 pack][8.5 ounce (pack of 1)]
Argan Magic Nourishing Hair Cream - Hydrates, Conditions, and Eliminates Frizz\x20
Price: $12.95\x20
Rating: N.A.\x20
[Description]\x20
[Buy Now]"""


@given(st.lists(st.builds(Step, action=LINE, observation=LINE), max_size=8))
def test_round_trip(steps):
    assert parse(render(steps)) == tuple(steps)


def test_foreign_lines_are_ignored_and_a_cut_text_keeps_its_last_action():
    text = "hello\nObservation: early\nAction: search[a]\nnoise\nObservation: one\nObservation: two\nAction: click[b]"
    assert parse(text) == (
        Step(action="search[a]", observation="one"),
        Step(action="click[b]", observation=""),
    )


def test_each_page_of_the_store_becomes_one_line(catalogue, index):
    visit = Visit(catalogue, index, "a black desk lamp")
    actions = ["search[desk lamp]", "click[B000000001]", "click[black]", "click[Features]", "click[< Prev]"]
    lines = [brief(visit.step(action)) for action in (*actions, "click[Buy Now]")]
    assert lines == [
        (
            "Results: [B000000001] Willow Desk Lamp with Dimmer $31.5 | [B000000002] Harbor Floor Lamp $80.0 | "
            "[B000000003] Alder Bedside Lamp $19.0"
        ),
        "Item: Willow Desk Lamp with Dimmer $31.5 color [black][white][sea green]",
        "You have clicked black.",
        "three brightness steps | warm light",
        "Item: Willow Desk Lamp with Dimmer $31.5 color [black][white][sea green]",
        "You have bought [B000000001] Willow Desk Lamp with Dimmer $31.5",
    ]


def test_real_item_page_keeps_title_price_and_options():
    expected = "Item: Argan Magic Nourishing Hair Cream $12.95 size [2 pack][8.5 ounce (pack of 1)]"
    assert brief(REAL_ITEM) == expected


def test_search_page_and_empty_results_have_their_own_words(catalogue, index):
    visit = Visit(catalogue, index, "a lamp")
    assert brief(visit.page.text) == "Search page."
    assert brief(visit.step("search[zeppelin]")) == "Results: none"


@given(st.text(max_size=2_000))
def test_any_page_is_bounded_to_one_line(page):
    short = brief(page)
    assert len(short) <= BRIEF_CHARACTERS + 40
    assert "\n" not in short
