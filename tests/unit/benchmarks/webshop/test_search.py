"""Search: a product's own title finds it first; ties and empty queries are settled."""

from __future__ import annotations

from benchmarks.minja.rap_notes import load_pairs
from benchmarks.webshop.catalogue import load_catalogue, target_asin
from benchmarks.webshop.search import SearchIndex, words
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
