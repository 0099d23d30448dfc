"""Search over the catalogue: BM25 (Robertson and Zaragoza 2009) with Lucene's idf, as WebShop's own engine.

    score(q, d) = sum over words w of q of  idf(w) * tf / (tf + k1 * (1 - b + b * |d| / mean |d|))
    idf(w)      = ln(1 + (N - n(w) + 0.5) / (n(w) + 0.5))

Ties are broken by catalogue order, so that equal queries give equal pages. Written here because `bm25s` loads llvmlite
where that is installed, and vLLM 0.32's worker dies when it finds llvmlite's objects among the loaded modules.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.attribution.webshop.catalogue import Catalogue, Product

__all__ = ["SearchIndex", "words"]

MAX_RESULTS = 50
"""WebShop's number of results for a query."""

K1, B = 0.9, 0.4
"""Pyserini's defaults, which WebShop uses: saturation of repeated words, and weight of a text's length."""

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
        documents = [Counter(words(_indexed_text(product))) for product in catalogue.products]
        lengths = [document.total() for document in documents]
        mean_length = sum(lengths) / max(len(lengths), 1) or 1.0
        self._postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        """Word to (product number, weight of the word there)."""
        for number, (document, length) in enumerate(zip(documents, lengths, strict=True)):
            norm = K1 * (1 - B + B * length / mean_length)
            for word, count in document.items():
                self._postings[word].append((number, count / (count + norm)))

    def search(self, query: str) -> tuple[Product, ...]:
        """The products that share a word with the query, best first, at most MAX_RESULTS."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in words(query):
            postings = self._postings.get(word, [])
            idf = math.log(1 + (len(self._products) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, weight in postings:
                scores[number] += idf * weight
        best = sorted(scores, key=lambda number: (-scores[number], number))[:MAX_RESULTS]
        return tuple(self._products[number] for number in best)


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
