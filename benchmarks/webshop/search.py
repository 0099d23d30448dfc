"""Search over the catalogue: BM25 (Robertson; the Lucene variant, as WebShop's own engine) by the `bm25s` package.

Ties are broken by catalogue order, so that equal queries give equal pages.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import bm25s  # type: ignore[import-untyped]
import numpy as np

if TYPE_CHECKING:
    from benchmarks.webshop.catalogue import Catalogue, Product

__all__ = ["SearchIndex", "words"]

MAX_RESULTS = 50
"""WebShop's number of results for a query."""

MAX_INDEXED_CHARACTERS = 1_000
"""Of a product's description and features: more only dilutes the title."""

_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by for from i if im in into is it its me my of on or s so that the their them then "
        "there these they this to want need looking find would like with you your price lower than dollars",
    )
)


def words(text: str) -> list[str]:
    """Lower-case words without stop words and plural endings, in order."""
    return [_singular(word) for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _STOP_WORDS]


class SearchIndex:
    """The store's search box."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._products = catalogue.products
        self._bm25 = bm25s.BM25(method="lucene")
        self._bm25.index([words(_indexed_text(product)) for product in catalogue.products], show_progress=False)

    def search(self, query: str) -> tuple[Product, ...]:
        """The products that share a word with the query, best first, at most MAX_RESULTS."""
        tokens = words(query)
        if not tokens:
            return ()
        scores = self._bm25.get_scores(tokens)
        best = np.argsort(-scores, kind="stable")[:MAX_RESULTS]
        return tuple(self._products[index] for index in best if scores[index] > 0)


def _indexed_text(product: Product) -> str:
    body = " ".join((product.description, *product.features))[:MAX_INDEXED_CHARACTERS]
    return (
        f"{product.title} {product.title} {body} {' '.join(v for values in product.options.values() for v in values)}"
    )


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith(("shes", "ches", "xes", "sses")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
