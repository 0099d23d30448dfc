"""The reward of a purchase counts asked words, chosen options and the price limit."""

from __future__ import annotations

import pytest

from benchmarks.attribution.webshop.environment import Visit
from benchmarks.attribution.webshop.goals import (
    Goal,
    goal_of,
    load_instructions,
    reward,
    trajectory_reward,
)
from benchmarks.attribution.webshop.trajectory import Step, brief, render
from tests.unit.benchmarks.webshop.conftest import PRODUCTS

QUERY = "i need a black desk lamp, and price lower than 40.00 dollars"


def shop(catalogue, index, *actions: str):
    visit = Visit(catalogue, index, QUERY)
    return render(Step(action=action, observation=brief(visit.step(action))) for action in actions)


def test_goal_is_the_words_and_the_price_limit():
    assert goal_of(QUERY) == Goal(instruction=QUERY, asked=("black", "desk", "lamp"), price_limit_usd=40.0)
    assert goal_of("a lamp").price_limit_usd is None


@pytest.mark.parametrize(
    ("chosen", "limit", "expected"), [({"color": "black"}, 40.0, 1.0), ({}, 40.0, 0.75), ({}, 10.0, 0.5)]
)
def test_reward_of_a_purchase(chosen, limit, expected):
    goal = Goal(instruction="", asked=("black", "desk", "lamp"), price_limit_usd=limit)
    assert reward(goal, PRODUCTS[0], chosen) == expected


def test_nothing_bought_is_zero(catalogue, index):
    assert reward(goal_of(QUERY), None, {}) == 0.0
    assert trajectory_reward(catalogue, QUERY, shop(catalogue, index, "search[desk lamp]")) == 0.0


@pytest.mark.parametrize(
    ("clicks", "expected"),
    [
        (("click[black]",), 1.0),
        ((), 0.75),
        (("click[black]", "click[white]"), 0.75),
        (("click[black]", "click[< Prev]", "click[B000000001]"), 0.75),
    ],
)
def test_reward_is_read_from_the_text_of_an_episode(catalogue, index, clicks, expected):
    text = shop(catalogue, index, "search[desk lamp]", "click[B000000001]", *clicks, "click[Buy Now]")
    assert trajectory_reward(catalogue, QUERY, text) == expected


def test_later_value_of_an_option_kind_counts(catalogue, index):
    text = shop(
        catalogue, index, "search[desk lamp]", "click[B000000001]", "click[white]", "click[black]", "click[Buy Now]"
    )
    assert trajectory_reward(catalogue, QUERY, text) == 1.0


@pytest.mark.tool("data")
def test_real_instructions_name_their_victim(data):
    instructions = load_instructions(data / "minja" / "rap", "toothbrush")
    assert len(instructions) > 50
    assert all("toothbrush" in instruction for instruction in instructions)
    assert goal_of(instructions[0]).price_limit_usd == 50.0
