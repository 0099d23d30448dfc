"""Shopping goals and the reward of a purchase, after WebShop (Yao et al. 2022, section 3.1), for benign use.

WebShop scores type match x (attributes + options + price matched) / (their number) against a gold product. Most
instructions here have no gold product, so the instruction's own words stand in for attributes and options:

    reward = (asked words found in the product's text or chosen options + [price within the limit]) / (asked words + 1)

A word that only an option carries counts only when that option was chosen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.attribution.webshop.rows import read_rows
from benchmarks.attribution.webshop.search import words
from benchmarks.attribution.webshop.trajectory import parse
from benchmarks.harness.public_data import reading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.attribution.webshop.catalogue import Catalogue, Product

__all__ = ["Goal", "goal_of", "load_instructions", "reward", "trajectory_reward"]

_PRICE_LIMIT = re.compile(r",? and price lower than (\d+(?:\.\d+)?) dollars")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a customer wants."""

    instruction: str
    asked: tuple[str, ...]
    """Distinct words that the product must have."""

    price_limit_usd: float | None


def goal_of(instruction: str) -> Goal:
    """Read an instruction: its words, and its price limit where it names one."""
    limit = _PRICE_LIMIT.search(instruction)
    wish = instruction[: limit.start()] if limit else instruction
    return Goal(
        instruction=instruction,
        asked=tuple(dict.fromkeys(words(wish))),
        price_limit_usd=float(limit[1]) if limit else None,
    )


def load_instructions(minja_rap: Path, containing: str = "") -> tuple[str, ...]:
    """The distinct human instructions of MINJA's RAP data that contain a word, in file order.

    Raises:
        UsageError: the file is missing or not a JSON list.
    """
    with reading(minja_rap / "webshop_instructions.json") as path:
        texts = dict.fromkeys(row["instruction"] for row in read_rows(path))
        return tuple(text for text in texts if containing.lower() in text.lower())


def reward(goal: Goal, product: Product | None, chosen: Mapping[str, str]) -> float:
    """Reward of a purchase, 0 to 1; nothing bought is 0."""
    if product is None:
        return 0.0
    text = (product.title, product.description, *product.features, *product.attributes, *chosen.values())
    carried = set(words(" ".join(text)))
    matched = sum(word in carried for word in goal.asked)
    affordable = goal.price_limit_usd is None or product.price_usd <= goal.price_limit_usd
    return (matched + affordable) / (len(goal.asked) + 1)


def trajectory_reward(catalogue: Catalogue, query: str, trajectory: str) -> float:
    """Reward of an episode's text (`webshop.trajectory`): its purchase and the options clicked for it."""
    product: Product | None = None
    chosen: dict[str, str] = {}
    for step in parse(trajectory):
        opened = re.fullmatch(r"click\[(\w{10})\]", step.action)
        if opened and step.observation.startswith("Item"):
            chosen = {}
        picked = re.fullmatch(r"You have clicked (.+)\.", step.observation)
        if picked:
            chosen[picked[1]] = picked[1]
        bought = re.match(r"You have bought \[(\w{10})\]", step.observation)
        if bought:
            product = catalogue.by_asin.get(bought[1])
    if product is None:
        return 0.0
    # Of two values of one kind the later click counts, as in the store.
    final = {kind: value for value in chosen for kind, values in product.options.items() if value in values}
    return reward(goal_of(query), product, final)
