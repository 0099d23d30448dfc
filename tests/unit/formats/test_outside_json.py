"""JSON from outside: read as Python reads it, but for what two readers would read in two ways."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import EventError, UsageError
from memory_audit.formats.nesting import MAX_DEPTH
from memory_audit.formats.outside_json import decode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


@given(VALUES, st.booleans(), st.sampled_from(["", "\ufeff"]))
def test_a_value_comes_back_in_either_spelling(value, ascii_only, mark):
    assert decode((mark + json.dumps(value, ensure_ascii=ascii_only)).encode(), "f") == value


@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=4), VALUES, st.data())
def test_a_member_that_is_there_twice_is_refused_wherever_it_is(record, value, data):
    name = data.draw(st.sampled_from(sorted(record)))
    again = f"{json.dumps(record)[:-1]}, {json.dumps(name)}: {json.dumps(value)}}}"
    inside = data.draw(st.sampled_from(["%s", "[%s]", '{"a": %s}', '[1, {"b": [%s]}]']))
    with pytest.raises(UsageError) as refused:
        decode((inside % again).encode() if "%" not in again else again.encode(), "f, line 3")
    assert str(refused.value) == f"f, line 3: a member is there twice: {name!r:.60}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"1 2", "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b"9" * 5_000, "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not valid UTF-8 at byte 0"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b"[1e999]", "1e999 is no number that a float holds"),
        (rb'["\ud800"]', "not valid Unicode (a lone surrogate)"),
        (rb'{"\uDfff": 1}', "not valid Unicode (a lone surrogate)"),
        (b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2), "more than 100 levels of JSON"),
    ],
)
def test_anything_else_is_refused_in_one_line_with_the_error_asked_for(data, message):
    with pytest.raises(EventError) as refused:
        decode(data, "f", error=EventError)
    assert str(refused.value).startswith(f"f: {message}")
    assert "\n" not in str(refused.value)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    try:
        value = decode(data, "f")
    except UsageError:
        return
    assert json.loads(data.decode("utf-8-sig")) == value
