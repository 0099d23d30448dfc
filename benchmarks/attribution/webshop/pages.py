"""The pages an agent sees, in the style of ReAct's WebShop prompt (Yao et al. 2022), and what each lets it click.

Pages are short on purpose: three results, titles cut, at most six values of an option. Values that share a word with
the instruction come first, so that cutting never hides the value that was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.attribution.webshop.search import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.attribution.webshop.catalogue import Product

__all__ = ["Page", "item_page", "purchase_page", "results_page", "search_page", "section_page"]

RESULTS_PER_PAGE = 3
"""As in ReAct's prompt; WebShop itself shows ten."""

TITLE_CHARACTERS = 70
SECTION_CHARACTERS = 400
OPTION_VALUES = 6
"""Values shown per kind of option."""

BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"
SECTIONS = ("Description", "Features")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page: its text, and the buttons on it."""

    text: str
    buttons: tuple[str, ...]
    """What `click[...]` takes, as shown."""

    has_search: bool = False
    """Whether `search[...]` is possible here."""


def search_page(instruction: str) -> Page:
    """The start page with its search box."""
    return Page(text=f"Webshop\nInstruction:\n{instruction}\n[Search]", buttons=(), has_search=True)


def results_page(results: Sequence[Product], number: int) -> Page:
    """The results with 1-based page number `number`."""
    shown = results[(number - 1) * RESULTS_PER_PAGE : number * RESULTS_PER_PAGE]
    turns = [PREVIOUS] if number > 1 else []
    if number * RESULTS_PER_PAGE < len(results):
        turns.append(NEXT)
    lines = [f"[{BACK}]", f"Page {number} (Total results: {len(results)})", *(f"[{turn}]" for turn in turns)]
    for product in shown:
        lines += [f"[{product.asin}]", cut(product.title, TITLE_CHARACTERS), price_text(product.price_usd)]
    return Page(text="\n".join(lines), buttons=(*(product.asin for product in shown), *turns, BACK))


def item_page(product: Product, instruction: str) -> Page:
    """A product with its options and the button that buys it."""
    asked = set(words(instruction))
    lines = [f"[{BACK}]", f"[{PREVIOUS}]"]
    buttons: list[str] = []
    for kind, values in product.options.items():
        shown = sorted(values, key=lambda value: asked.isdisjoint(words(value)))[:OPTION_VALUES]
        lines.append(f"{kind} {''.join(f'[{value}]' for value in shown)}")
        buttons += shown
    lines += [cut(product.title, TITLE_CHARACTERS), f"Price: {price_text(product.price_usd)}"]
    lines += [f"[{name}]" for name in (*SECTIONS, BUY)]
    return Page(text="\n".join(lines), buttons=(*dict.fromkeys(buttons), *SECTIONS, BUY, PREVIOUS, BACK))


def section_page(product: Product, section: str) -> Page:
    """The description or the features of a product."""
    body = product.description if section == SECTIONS[0] else " | ".join(product.features)
    text = f"[{BACK}]\n[{PREVIOUS}]\n{cut(body, SECTION_CHARACTERS) or 'None given.'}"
    return Page(text=text, buttons=(PREVIOUS, BACK))


def purchase_page(product: Product) -> Page:
    """The end of an episode. WebShop shows a score here; a shop would not, so it names what was bought."""
    price = price_text(product.price_usd)
    return Page(text=f"You have bought [{product.asin}] {cut(product.title, TITLE_CHARACTERS)} {price}", buttons=())


def price_text(price_usd: float) -> str:
    """A price as WebShop's pages show it: `$16.0`."""
    return f"${price_usd}"


def cut(text: str, limit: int) -> str:
    """The text up to the last word that ends within `limit` characters."""
    if len(text) <= limit:
        return text
    return text[: limit + 1].rpartition(" ")[0].rstrip(" ,.;:-|&") or text[:limit]
