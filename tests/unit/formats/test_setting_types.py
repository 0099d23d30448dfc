"""Which values fit which declared types."""

from typing import Annotated, Literal

import pytest
from msgspec import Meta

from memory_audit.formats.setting_types import describe_type, fits_type


@pytest.mark.parametrize(
    ("value", "hint", "fits"),
    [
        (1, int, True), (True, int, False), (1.0, int, False), (1, float, True), (False, float, False),
        ("a", str, True), (None, str, False), (None, str | None, True), (None, int | None, True),
        ("x", int | None, False),
        (("a", "b"), tuple[str, ...], True), (("a", 1), tuple[str, ...], False), ("a", tuple[str, ...], False),
        ("set", Literal["set", "loo"], True), ("sets", Literal["set", "loo"], False), ({}, dict[str, object], True),
        ([], dict[str, object], False),
    ],
)  # fmt: skip
def test_what_fits(value, hint, fits):
    assert fits_type(value, hint) is fits


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int | None, "a whole number or nothing"), (float, "a number"), (tuple[str, ...], "a list of texts"),
        (Literal["a", "b"], "one of a, b"), (dict[str, object], "a mapping"),
        (Annotated[int, Meta(ge=1, le=1_000)], "a whole number from 1 to 1,000"),
        (Annotated[float, Meta(ge=0)] | None, "a number of 0 or more or nothing"),
        (Annotated[str, Meta(min_length=1)], "text, not empty"),
        (Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=3)], "a list of texts, 0 to 3"),
        (Annotated[str, Meta(pattern="x", description="an x")], "an x"),
    ],
)  # fmt: skip
def test_how_a_type_is_described(hint, words):
    assert describe_type(hint) == words
