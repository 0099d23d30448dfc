"""A question to the gate as a file."""

import json

import pytest

from memory_audit.errors import UsageError
from memory_audit.gate.call import Context, ToolCall, ToolOutput, parse_question


def parse(record):
    return parse_question(json.dumps(record).encode(), "call.json")


def test_everything_is_read():
    call, context = parse({
        "tool": "pay", "arguments": {"to": "x", "n": 1.5}, "request": "Pay", "memories": ["m1"],
        "outputs": [{"tool": "read", "text": "page"}], "executed": [{"tool": "pay", "arguments": {"to": "y"}}],
    })  # fmt: skip
    assert call == ToolCall(tool="pay", arguments={"to": "x", "n": 1.5})
    assert context == Context(
        request="Pay", memories=("m1",), outputs=(ToolOutput(tool="read", text="page"),),
        executed=(ToolCall(tool="pay", arguments={"to": "y"}),),
    )  # fmt: skip


def test_all_but_the_tool_may_be_left_out():
    assert parse({"tool": "pay"}) == (ToolCall(tool="pay", arguments={}), Context())


def test_equal_calls_have_equal_keys_in_any_order_of_arguments():
    assert ToolCall(tool="t", arguments={"a": 1, "b": 2}).key() == ToolCall(tool="t", arguments={"b": 2, "a": 1}).key()
    assert ToolCall(tool="t", arguments={"a": 1}).key() != ToolCall(tool="t", arguments={"a": "1"}).key()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "not JSON"),
        (b"[]", "expected one JSON object"),
        (b"{}", "missing required field `tool`"),
        (b'{"tool": 3}', "tool: Expected `str`"),
        (b'{"tool": ""}', "tool: Expected `str` of length >= 1"),
        (b'{"tool": "t", "tool": "u"}', "a member is there twice"),
        (b'{"tool": "t", "arguments": {"a": 1, "a": 2}}', "a member is there twice"),
        (b'{"tool": "t", "arguments": []}', "arguments: Expected `object`"),
        (b'{"tool": "t", "arguments": {"a": NaN}}', "not a JSON number"),
        (b'{"tool": "t", "arguments": {"a": 1e999}}', "1e999 is no number that a float holds"),
        (b'{"tool": "t", "arguments": {"a": [-2.5E+400]}}', "-2.5E+400 is no number"),
        (b'{"tool": "t", "arguments": {"a": "\\ud800"}}', "not valid Unicode"),
        (b'{"tool": "t", "request": 1}', "request: Expected `str`"),
        (b'{"tool": "t", "memories": "m1"}', "memories: Expected `array`"),
        (b'{"tool": "t", "outputs": [{"tool": "x"}]}', "outputs[0]: Object missing required field `text`"),
        (b'{"tool": "t", "outputs": [{"tool": "x", "text": "y", "label": "trusted"}]}', "unknown field `label`"),
        (b'{"tool": "t", "executed": [3]}', "executed[0]: Expected `object`"),
        (b'{"tool": "t", "trusted": true}', "unknown field `trusted`"),
        (b'{"tool": "t", "memories": [%s]}' % b",".join([b'"m"'] * 10_001), "`array` of length <= 10000"),
        (b'{"tool": "t", "memories": [""]}', "memories[0]: Expected `str` of length >= 1"),
        (b"[" * 100_000, "not JSON"),
        (b" " * ((8 << 20) + 1), "have at most"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line_that_names_the_file(data, error):
    with pytest.raises(UsageError) as raised:
        parse_question(data, "call.json")
    assert str(raised.value).startswith("call.json")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)
