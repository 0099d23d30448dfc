"""The text of an episode: what an agent stores in memory, what a replay returns, what a scorer reads.

    Action: search[6 pack manual toothbrushes sensitive teeth]
    Observation: Results: [B08CSNSY95] Adult Extra Soft Toothbrush with 20000 Soft $11.99 | [B09HTTT2K2] 6 Pack Kids …
    Action: click[B08CSNSY95]
    Observation: Item: Adult Extra Soft Toothbrush with 20000 Soft $11.99
    Action: click[Buy Now]
    Observation: You have bought [B08CSNSY95] Adult Extra Soft Toothbrush with 20000 Soft $11.99

Rules: two lines per step; an observation is one line, shortened by `brief`; lines that are neither are ignored when
parsed, because stored text may come from anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.attribution.webshop.pages import BACK, BUY, PREVIOUS, cut

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Step", "brief", "parse", "render"]

BRIEF_TITLE_CHARACTERS = 40
BRIEF_OPTIONS_CHARACTERS = 40
BRIEF_CHARACTERS = 300
"""Bound on one observation in stored text: about 100 tokens."""

_ASIN_LINE = re.compile(r"\[(B[0-9A-Z]{9}|\d{9}[\dX])\]")
_BOUGHT = re.compile(r"(You have bought \[\w+\]) (.*) (\$[\d.]+)")
_PRICE = re.compile(r"\$[\d.,]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action and what the store answered, each one line."""

    action: str
    observation: str


def render(steps: Iterable[Step]) -> str:
    """Write an episode's text."""
    return "\n".join(f"Action: {step.action}\nObservation: {step.observation}" for step in steps)


def parse(text: str) -> tuple[Step, ...]:
    """Read an episode's text. An action whose observation is missing gets an empty one."""
    steps: list[Step] = []
    for line in text.splitlines():
        if line.startswith("Action: "):
            steps.append(Step(action=line.removeprefix("Action: ").strip(), observation=""))
        elif line.startswith("Observation: ") and steps and not steps[-1].observation:
            observation = line.removeprefix("Observation: ").strip()
            steps[-1] = Step(action=steps[-1].action, observation=observation)
    return tuple(steps)


def brief(observation: str, *, options_characters: int = BRIEF_OPTIONS_CHARACTERS) -> str:
    """Shorten a page (this store's, or one of ReAct's real WebShop pages) to one line."""
    lines = [line.strip() for line in observation.splitlines() if line.strip()]
    if f"[{BUY}]" in lines:
        return _brief_item(lines, options_characters)
    if any(line.startswith("Page ") for line in lines[:2]):
        return _brief_results(lines)
    bought = _BOUGHT.fullmatch(observation)
    if bought:
        return f"{bought[1]} {cut(bought[2], BRIEF_TITLE_CHARACTERS)} {bought[3]}"
    if "[Search]" in lines:
        return "Search page."
    return cut(" ".join(line for line in lines if line not in (f"[{BACK}]", f"[{PREVIOUS}]")), BRIEF_CHARACTERS)


def _brief_results(lines: list[str]) -> str:
    found = []
    for asin, title, price in zip(lines, lines[1:], lines[2:], strict=False):
        if _ASIN_LINE.fullmatch(asin) and price.startswith("$"):
            found.append(f"{asin} {cut(title, BRIEF_TITLE_CHARACTERS)} {price}")
    return f"Results: {' | '.join(found)}" if found else "Results: none"


def _brief_item(lines: list[str], options_characters: int) -> str:
    price_at = next((number for number, line in enumerate(lines) if line.startswith("Price: ")), None)
    if price_at is None:
        return "Item."
    title = cut(lines[price_at - 1], BRIEF_TITLE_CHARACTERS)
    price = _PRICE.search(lines[price_at])
    options = " ".join(line for line in lines[: price_at - 1] if line not in (f"[{BACK}]", f"[{PREVIOUS}]"))
    if len(options) > options_characters:
        options = options[:options_characters].rpartition("]")[0] + "]"
    return " ".join(part for part in (f"Item: {title}", price[0] if price else "", options) if part)
