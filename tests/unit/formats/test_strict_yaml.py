"""YAML read strictly: what PyYAML's own constructors fail on is refused in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import UsageError
from memory_audit.formats import strict_yaml


def read(text):
    return strict_yaml.decode(text if isinstance(text, bytes) else text.encode(), max_bytes=100_000, where="f")


def test_plain_values_are_read():
    assert read("a: [1, 2.5, true, null, text, {b: 'x'}]") == {"a": [1, 2.5, True, None, "text", {"b": "x"}]}
    assert read('{"a": "json"}') == {"a": "json"}
    assert read("") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!!bool x", "tags are not allowed"),  # KeyError in PyYAML
        ('!!int ""', "tags are not allowed"),  # IndexError
        ("!!timestamp x", "tags are not allowed"),  # AttributeError
        ("a: !!map [b]", "tags are not allowed"),
        ("! x", "tags are not allowed"),
        ("a: &b 1\nc: *b", "aliases are not allowed"),
        ("<<: {a: b}", "merge keys are not allowed"),
        ("a: 1\na: 2", "a member is there twice near line 2: 'a'"),
        ("{1: a, '1': b}", "a member is there twice"),
        ("2001-99-99", "not valid YAML"),
        ("a: 2001-01-01", "quote it"),
        ("1:" * 900 + "1.5", "not valid YAML"),  # OverflowError
        ("0x" + "f" * 4_000, "beyond 64 bits"),  # a number that Python cannot print
        (".inf", "not finite"),
        (".nan", "not finite"),
        ('"\\ud800"', "not valid YAML"),
        ('"\\U00110000"', "not valid YAML"),
        ("[" * 102 + "]" * 102, "more than 100 levels"),
        ("[" * 5_000, "not valid YAML"),
        ("x" * 100_001, "at most 100000 bytes are allowed"),
        (b"\xff", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
    ],
)
def test_what_is_not_plain_is_refused_in_one_line(text, message):
    with pytest.raises(UsageError) as failure:
        read(text)
    assert message in str(failure.value)
    assert str(failure.value).startswith("f: ")
    assert "\n" not in str(failure.value)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        value = read(text.encode(errors="replace"))
    except UsageError:
        return
    assert value is None or isinstance(value, dict | list | str | int | float)
