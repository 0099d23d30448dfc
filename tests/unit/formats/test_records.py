"""Records from decoded values: what does not fit is told by its place, with what was expected and what is there."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from memory_audit.errors import EventError, UsageError
from memory_audit.formats.records import convert


class Leaf(Struct, forbid_unknown_fields=True, kw_only=True):
    kind: Literal["a", "b"]
    note: str = ""

    def __post_init__(self) -> None:
        if self.note == "no":
            raise UsageError("a rule of its own")


class Tree(Struct, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    leaf: Leaf | None = None
    leaves: tuple[Leaf, ...] = ()
    pairs: tuple[tuple[str, Annotated[float, Meta(ge=0, le=1)]], ...] = ()
    scores: dict[str, float] = {}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "leaf", "leaves", "pairs", "scores", "kind", " - at `$.leaf"]), inner
        )
    ),
)


def test_what_fits_becomes_a_record():
    value = {"name": "t", "leaves": [{"kind": "a"}], "pairs": [["x", 1]], "scores": {"s": 2}}
    tree = convert(value, Tree, "f")
    assert tree == Tree(name="t", leaves=(Leaf(kind="a"),), pairs=(("x", 1.0),), scores={"s": 2.0})
    assert isinstance(tree.pairs[0][1], float)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name is '', expected text, not empty"),
        ({"name": None}, "name is None, expected text, not empty"),
        ({"leaf": {}}, "leaf.kind is missing"),
        ({"leaf": {"kind": "c"}}, "leaf.kind is 'c', expected one of a, b"),
        ({"leaf": 3}, "leaf is 3, expected an object with kind, note"),
        ({"leaves": [{"kind": "a"}, {"kind": "a", "x": 1}]}, "unknown field 'x' of leaves[1]; known are kind, note"),
        ({"leaves": {}}, "leaves is {}, expected a list"),
        ({"pairs": [["x", 2]]}, "pairs[0][1] is 2, expected a number from 0 to 1"),
        ({"pairs": [["x", 10**400]]}, "expected a number from 0 to 1"),
        ({"pairs": [["x"]]}, "pairs[0] is ['x'], expected a list"),
        ({"scores": {"s": "high"}}, "scores is not a mapping of names to a number"),
        ({"other": 1}, "unknown field 'other'; known are name, leaf, leaves, pairs, scores"),
        ({"leaf": {"kind": "a", "note": "no"}}, "a rule of its own"),
        ({"a\n\x1b[31m - at `$.leaf": 1}, r"unknown field"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(change, message):
    with pytest.raises(EventError) as failure:
        convert({"name": "t"} | change, Tree, "f, line 3", error=EventError)
    assert str(failure.value).startswith("f, line 3: ")
    assert message in str(failure.value)
    assert str(failure.value).isprintable()
    assert len(str(failure.value)) < 300


@given(VALUES)
def test_any_value_becomes_a_record_or_is_refused_in_one_line(value: Any):
    try:
        convert(value, Tree, "f")
    except UsageError as error:
        assert str(error).isprintable()  # noqa: PT017 - either is right
