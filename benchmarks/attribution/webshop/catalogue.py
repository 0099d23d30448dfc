"""The store's products: WebShop's 1,000, those seen in real ReAct episodes, and the targets of MINJA's nine attacks.

The targets stand in the catalogue under product codes made from their titles, because the attack's data gives none, and
cost 80 % of the price limit that the attack's note names. Reads `--data` folders; knows nothing of pages or search.
"""

from __future__ import annotations

import hashlib
import re
import string
import unicodedata
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from benchmarks.attribution.webshop.rows import read_rows
from benchmarks.harness.public_data import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from benchmarks.attribution.minja.rap_notes import Pair

__all__ = ["Catalogue", "Product", "load_catalogue", "target_asin", "target_product"]

DEFAULT_PRICE_USD = 100.0
"""WebShop's own price for a product whose price is unknown (princeton-nlp/WebShop, engine.py)."""

TARGET_DISCOUNT = 0.8
"""MINJA says "price lower than {target_price}"; the target must really be that."""

ASIN_LENGTH = 10
_BASE36 = string.digits + string.ascii_uppercase
_BRACKETS = str.maketrans("[]", "()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One product of the store."""

    asin: str
    """Product code: ten characters, what `click[...]` opens."""

    title: str
    """One line without square brackets, which mark what can be clicked."""

    price_usd: float
    options: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Kind of option (size, color) to its values."""

    description: str = ""
    features: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    """Attributes that WebShop's authors mined for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All products, in a fixed order, by product code."""

    products: tuple[Product, ...]
    by_asin: Mapping[str, Product]

    @classmethod
    def of(cls, products: Iterable[Product]) -> Catalogue:
        """Keep the first product of each code."""
        by_asin: dict[str, Product] = {}
        for product in products:
            by_asin.setdefault(product.asin, product)
        return cls(products=tuple(by_asin.values()), by_asin=MappingProxyType(by_asin))


def target_asin(title: str) -> str:
    """Product code of a target: `B0` and eight characters of base 36 from the SHA-256 of its title."""
    number = int.from_bytes(hashlib.sha256(title.encode()).digest()[:8])
    digits = []
    for _ in range(ASIN_LENGTH - 2):
        number, digit = divmod(number, len(_BASE36))
        digits.append(_BASE36[digit])
    return "B0" + "".join(digits)


def target_product(pair: Pair) -> Product:
    """The product that the attack wants sold."""
    return Product(
        asin=target_asin(pair.target), title=_line(pair.target), price_usd=round(pair.price_usd * TARGET_DISCOUNT, 2)
    )


def load_catalogue(webshop: Path, pairs: Iterable[Pair]) -> Catalogue:
    """Read the products of a WebShop data folder and add the targets of the pairs.

    Raises:
        UsageError: a file is missing or not the data this reads.
    """
    with reading(webshop / "products_1000.json") as path:
        full = [_full_product(row) for row in read_rows(path)]
    with reading(webshop / "products_from_react_1468.json") as path:
        seen = [_seen_product(row) for row in read_rows(path)]
    return Catalogue.of([*full, *seen, *(target_product(pair) for pair in pairs)])


def _full_product(row: dict[str, Any]) -> Product:
    features = row["small_description"] if isinstance(row["small_description"], list) else [row["small_description"]]
    return Product(
        asin=row["asin"],
        title=_line(row["name"]),
        price_usd=float(row["pricing"][0]) if row["pricing"] else DEFAULT_PRICE_USD,
        options=_options(row["options"]),
        description=_line(row["full_description"]),
        features=tuple(_line(feature) for feature in features if feature.strip()),
        attributes=tuple(_line(attribute) for attribute in row.get("instruction_attributes", ())),
    )


def _seen_product(row: dict[str, Any]) -> Product:
    return Product(
        asin=row["asin"],
        title=_line(row["title"]),
        price_usd=float(row["price"]),
        options=_options(row.get("options", {})),
    )


def _options(options: Mapping[str, Iterable[str]]) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({_line(kind): tuple(_line(value) for value in values) for kind, values in options.items()})


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", unicodedata.normalize("NFC", text).translate(_BRACKETS)).strip()
