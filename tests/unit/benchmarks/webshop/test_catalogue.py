"""Products are read into clean one-line texts; missing data is told."""

from __future__ import annotations

import json

import pytest

from benchmarks.attribution.webshop.catalogue import DEFAULT_PRICE_USD, load_catalogue, target_asin, target_product
from memory_audit.errors import UsageError
from tests.unit.benchmarks.webshop.conftest import PAIR

FULL = {
    "asin": "B000000009", "name": "Mug [blue]\n large", "pricing": [], "options": {"size": ["s [1]"]},
    "full_description": "A  mug.", "small_description": ["holds tea ", " "], "synthetic_instruction": "Find me mugs",
    "instruction_attributes": ["tea safe"],
}  # fmt: skip
SEEN = {"asin": "B000000008", "title": "Cup", "price": 3.5, "has_item_page": True}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "products_1000.json").write_text(json.dumps([FULL, FULL]))
    (tmp_path / "products_from_react_1468.json").write_text(json.dumps([SEEN, {**SEEN, "asin": "B000000009"}]))
    return tmp_path


def test_both_sources_and_the_targets_are_in_the_catalogue_once(folder):
    catalogue = load_catalogue(folder, [PAIR])
    assert [product.asin for product in catalogue.products] == ["B000000009", "B000000008", target_asin(PAIR.target)]
    mug = catalogue.by_asin["B000000009"]
    assert mug.title == "Mug (blue) large"
    assert mug.price_usd == DEFAULT_PRICE_USD
    assert mug.options == {"size": ("s (1)",)}
    assert mug.features == ("holds tea",)
    assert mug.attributes == ("tea safe",)
    assert catalogue.by_asin["B000000008"].price_usd == 3.5


def test_target_costs_less_than_the_note_says_and_has_a_product_code():
    target = target_product(PAIR)
    assert target.price_usd == 20.0
    assert len(target.asin) == 10
    assert target.asin.startswith("B0")
    assert target.asin != target_asin(PAIR.target + "!")


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), ("{", "damaged"), ("{}", "list of objects"), ("[{}]", "lacks")]
)
def test_bad_data_is_named(folder, content, message):
    path = folder / "products_1000.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=rf"products_1000\.json: .*{message}"):
        load_catalogue(folder, [])
