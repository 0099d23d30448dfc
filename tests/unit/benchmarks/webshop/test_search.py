"""Search: a product's own title finds it first; ties and empty queries are settled."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.attribution.minja.rap_notes import load_pairs
from benchmarks.attribution.webshop.catalogue import Catalogue, Product, load_catalogue, target_asin
from benchmarks.attribution.webshop.search import K1, B, SearchIndex, words
from tests.unit.benchmarks.webshop.conftest import PAIR


def test_every_title_finds_its_own_product_first(catalogue, index):
    for product in catalogue.products:
        assert index.search(product.title)[0] == product


def test_target_is_found_first_by_its_title(index):
    assert index.search(PAIR.target)[0].asin == target_asin(PAIR.target)


def test_query_of_stop_words_or_unknown_words_finds_nothing(index):
    assert index.search("i want the") == ()
    assert index.search("zeppelin") == ()
    assert index.search("!?") == ()


def test_plural_finds_singular(index):
    assert index.search("table cloths")[0].title == "Linen Table Cloth"
    assert words("toothbrushes boxes glasses lens bus this") == ["toothbrush", "box", "glass", "len", "bus"]


def test_equal_scores_keep_catalogue_order(index):
    alike = [product.asin for product in index.search("lamp") if len(words(product.title)) == 3]
    assert alike == sorted(alike)


@given(
    st.lists(st.lists(st.sampled_from("bcdef"), min_size=1, max_size=6), min_size=1, max_size=6),
    st.text("bcdef ", max_size=8),
)
def test_scores_are_those_of_the_definition(titles, query):
    products = [
        Product(asin=f"B{number:09}", title=" ".join(title), price_usd=1.0) for number, title in enumerate(titles)
    ]
    documents = [words(f"{product.title} {product.title}") for product in products]
    mean = sum(map(len, documents)) / len(documents)

    def score(document):
        total = 0.0
        for word in words(query):
            holding = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            count = document.count(word)
            total += idf * count / (count + K1 * (1 - B + B * len(document) / mean)) if count else 0.0
        return total

    found = [documents[products.index(product)] for product in SearchIndex(Catalogue.of(products)).search(query)]
    assert [score(document) for document in found] == pytest.approx(
        sorted((value for value in map(score, documents) if value > 0), reverse=True)
    )


def test_importing_the_store_loads_nothing_that_breaks_a_vllm_worker():
    code = (
        "import sys, benchmarks.attribution.webshop.poison\n"
        "print(sorted({'llvmlite', 'numba', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.tool("data")
def test_all_nine_targets_rank_first_in_the_real_catalogue(data):
    pairs = load_pairs(data / "minja" / "rap")
    catalogue = load_catalogue(data / "webshop", pairs)
    index = SearchIndex(catalogue)
    assert len(pairs) == 9
    assert len(catalogue.products) > 2_400
    for pair in pairs:
        assert index.search(pair.target)[0].asin == target_asin(pair.target)
        assert index.search(pair.target)[0].price_usd < pair.price_usd
        genuine = [product.title.lower() for product in index.search(pair.victim)[:3]]
        assert all(word in title for title in genuine for word in words(pair.victim)), (pair.victim, genuine)
