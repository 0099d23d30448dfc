"""The store as an environment: one action in, one observation out, no randomness, no clock.

Actions: `search[words]` on the start page, `click[button]` for what the page shows in brackets, `think[...]` anywhere
(answered "OK."). Any other action is answered "Invalid action!" and costs a step. An episode ends with `click[Buy Now]`
or after MAX_STEPS actions, thoughts included (paper App. B: 15).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from benchmarks.attribution.webshop.pages import (
    BACK,
    BUY,
    NEXT,
    PREVIOUS,
    SECTIONS,
    Page,
    item_page,
    purchase_page,
    results_page,
    search_page,
    section_page,
)
from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from benchmarks.attribution.webshop.catalogue import Catalogue, Product
    from benchmarks.attribution.webshop.search import SearchIndex

__all__ = ["INVALID", "MAX_STEPS", "OK", "Visit"]

MAX_STEPS = 15
OK = "OK."
INVALID = "Invalid action!"

_ACTION = re.compile(r"(think|search|click)\[([^\]\n]+)\]")


class Visit:
    """One customer's way through the store, from the start page to a purchase or the last step."""

    def __init__(self, catalogue: Catalogue, index: SearchIndex, instruction: str) -> None:
        self._catalogue = catalogue
        self._index = index
        self._instruction = instruction
        self._results: tuple[Product, ...] = ()
        self._number = 1
        self._item: Product | None = None
        self._in_section = False
        self.page: Page = search_page(instruction)
        self.steps = 0
        self.chosen: dict[str, str] = {}
        """Kind of option to the value clicked on the current item page."""

        self.bought: Product | None = None

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.bought is not None or self.steps >= MAX_STEPS

    def step(self, action: str) -> str:
        """Take one action and return the observation.

        Raises:
            UsageError: the episode is over.
        """
        if self.done:
            raise UsageError(f"action {action!r:.80} after the end of the episode; start a new visit")
        self.steps += 1
        parsed = _ACTION.fullmatch(action.strip())
        if parsed is None:
            return INVALID
        verb, argument = parsed[1], parsed[2].strip()
        if verb == "think":
            return OK
        if verb == "search":
            return self._search(argument)
        return self._click(argument)

    def _search(self, query: str) -> str:
        if not self.page.has_search:
            return INVALID
        self._results = self._index.search(query)
        return self._show_results(1)

    def _click(self, argument: str) -> str:
        wanted = argument.lower()
        if wanted not in (button.lower() for button in self.page.buttons):
            return self._choose(wanted) or INVALID  # an option value that the short page left out is still on sale
        if wanted == BACK.lower():
            return self._show(search_page(self._instruction))
        if self._item is None:
            return self._click_on_results(wanted)
        if wanted == PREVIOUS.lower():
            return (
                self._show_item(self._item, keep_options=True) if self._in_section else self._show_results(self._number)
            )
        for section in SECTIONS:
            if wanted == section.lower():
                self._in_section = True
                self.page = section_page(self._item, section)
                return self.page.text
        if wanted == BUY.lower():
            self.bought = self._item
            self.page = purchase_page(self._item)
            return self.page.text
        return self._choose(wanted) or INVALID

    def _click_on_results(self, wanted: str) -> str:
        if wanted == NEXT.lower():
            return self._show_results(self._number + 1)
        if wanted == PREVIOUS.lower():
            return self._show_results(self._number - 1)
        return self._show_item(self._catalogue.by_asin[wanted.upper()], keep_options=False)

    def _choose(self, wanted: str) -> str | None:
        if self._item is None or self._in_section:
            return None
        for kind, values in self._item.options.items():
            for value in values:
                if value.lower() == wanted:
                    self.chosen[kind] = value
                    return f"You have clicked {value}."
        return None

    def _show(self, page: Page) -> str:
        self._item, self._in_section, self.chosen = None, False, {}
        self.page = page
        return page.text

    def _show_results(self, number: int) -> str:
        self._number = number
        return self._show(results_page(self._results, number))

    def _show_item(self, product: Product, *, keep_options: bool) -> str:
        chosen = self.chosen if keep_options else {}
        text = self._show(item_page(product, self._instruction))
        self._item, self.chosen = product, chosen
        return text
