"""Which values fit which declared types."""

from typing import Literal

import pytest

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
    ],
)  # fmt: skip
def test_how_a_type_is_described(hint, words):
    assert describe_type(hint) == words
