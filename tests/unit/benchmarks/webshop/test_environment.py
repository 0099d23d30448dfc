"""The store: every action, every page, the cut after fifteen steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.attribution.webshop.catalogue import Catalogue
from benchmarks.attribution.webshop.environment import INVALID, MAX_STEPS, OK, Visit
from benchmarks.attribution.webshop.search import SearchIndex
from memory_audit.errors import UsageError
from tests.unit.benchmarks.webshop.conftest import PRODUCTS

_CATALOGUE = Catalogue.of(PRODUCTS)
_INDEX = SearchIndex(_CATALOGUE)

ACTIONS = st.one_of(
    st.sampled_from(
        [
            "think[hm]", "search[lamp]", "search[cloth]", "click[Next >]", "click[< Prev]", "click[Back to Search]",
            "click[B000000001]", "click[B000000005]", "click[black]", "click[Description]", "click[Features]",
            "click[Buy Now]", "sing[a song]", "",
        ]
    ),
    st.text(max_size=20),
)  # fmt: skip


@pytest.fixture
def visit(catalogue: Catalogue, index: SearchIndex) -> Visit:
    return Visit(catalogue, index, "i need a large black desk lamp")


def run(visit: Visit, *actions: str) -> list[str]:
    return [visit.step(action) for action in actions]


def test_start_page_shows_the_instruction_and_a_search_box(visit):
    assert visit.page.text == "Webshop\nInstruction:\ni need a large black desk lamp\n[Search]"
    assert visit.page.has_search
    assert visit.page.buttons == ()


def test_search_shows_three_results_with_code_title_and_price(visit):
    assert visit.step("search[desk lamp]").splitlines() == [
        "[Back to Search]", "Page 1 (Total results: 4)", "[Next >]",
        "[B000000001]", "Willow Desk Lamp with Dimmer", "$31.5",
        "[B000000002]", "Harbor Floor Lamp", "$80.0",
        "[B000000003]", "Alder Bedside Lamp", "$19.0",
    ]  # fmt: skip


def test_search_without_a_match_has_no_results_and_a_way_back(visit):
    observation = visit.step("search[zeppelin]")
    assert "Total results: 0" in observation
    assert visit.page.buttons == ("Back to Search",)


def test_next_and_previous_turn_the_pages_of_results(visit):
    first, second, again = run(visit, "search[lamp]", "click[Next >]", "click[< Prev]")
    assert "Page 2 (Total results: 4)" in second
    assert "[Next >]" not in second
    assert "[< Prev]" in second
    assert again == first


def test_item_page_shows_asked_options_first_and_buttons(visit):
    item = run(visit, "search[desk lamp]", "click[b000000001]")[-1]
    assert "color [black][white][sea green]" in item
    assert "size [large][small]" in item
    assert item.endswith("Willow Desk Lamp with Dimmer\nPrice: $31.5\n[Description]\n[Features]\n[Buy Now]")


def test_options_are_chosen_per_kind_and_survive_a_look_at_the_description(visit):
    observations = run(
        visit, "search[desk lamp]", "click[B000000001]", "click[white]", "click[Black]", "click[large]",
        "click[Description]", "click[< Prev]",
    )  # fmt: skip
    assert observations[3] == "You have clicked black."
    assert "A reading lamp for a desk." in observations[5]
    assert visit.chosen == {"color": "black", "size": "large"}


def test_leaving_the_item_page_forgets_its_options(visit):
    run(visit, "search[desk lamp]", "click[B000000001]", "click[white]", "click[< Prev]")
    assert visit.chosen == {}


def test_features_page_lists_the_features(visit):
    assert (
        "three brightness steps | warm light"
        in run(visit, "search[desk lamp]", "click[B000000001]", "click[Features]")[-1]
    )


def test_buy_now_ends_the_episode_and_names_the_product(visit):
    last = run(visit, "search[desk lamp]", "click[B000000001]", "click[Buy Now]")[-1]
    assert last == "You have bought [B000000001] Willow Desk Lamp with Dimmer $31.5"
    assert visit.done
    assert visit.bought is not None
    assert visit.bought.asin == "B000000001"
    with pytest.raises(UsageError, match="after the end of the episode"):
        visit.step("think[again]")


def test_think_is_answered_ok_anywhere_and_changes_nothing(visit):
    page = visit.page
    assert run(visit, "think[a lamp]") == [OK]
    assert visit.page == page


@pytest.mark.parametrize(
    "action",
    [
        "click[Buy Now]",
        "click[B000000001]",
        "click[Next >]",
        "search[]",
        "buy[B000000001]",
        "search lamp",
        "",
        "think[a\nb]",
    ],
)
def test_what_the_start_page_does_not_offer_is_invalid(visit, action):
    page = visit.page
    assert visit.step(action) == INVALID
    assert visit.page == page
    assert visit.steps == 1


@pytest.mark.parametrize("action", ["search[lamp]", "click[Buy Now]", "click[black]", "click[B000000005]"])
def test_what_a_results_page_does_not_offer_is_invalid(visit, action):
    assert run(visit, "search[desk lamp]", action)[-1] == INVALID


def test_back_to_search_brings_the_search_box_back(visit):
    back, found = run(visit, "search[lamp]", "click[B000000001]", "click[Back to Search]", "search[cloth]")[2:]
    assert back.endswith("[Search]")
    assert "Linen Table Cloth" in found


def test_episode_is_cut_after_fifteen_steps(visit):
    for _ in range(MAX_STEPS - 1):
        visit.step("think[hm]")
    assert not visit.done
    visit.step("think[hm]")
    assert visit.done
    assert visit.bought is None


@given(st.lists(ACTIONS, max_size=MAX_STEPS))
def test_equal_actions_give_equal_observations_and_every_button_works(actions):
    first, second = (Visit(_CATALOGUE, _INDEX, "a black lamp") for _ in range(2))
    for action in actions:
        if first.done:
            break
        assert first.step(action) == second.step(action)
        assert first.steps <= MAX_STEPS
    if first.done:
        return
    for button in first.page.buttons:
        fresh = Visit(_CATALOGUE, _INDEX, "a black lamp")
        for action in actions:
            fresh.step(action)
        if not fresh.done:
            assert fresh.step(f"click[{button}]") != INVALID
