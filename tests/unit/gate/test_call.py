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
        (b"{}", "tool is missing"),
        (b'{"tool": 3}', "tool is 3, expected text"),
        (b'{"tool": ""}', "tool is '', expected text, not empty"),
        (b'{"tool": "t", "tool": "u"}', "a member is there twice"),
        (b'{"tool": "t", "arguments": {"a": 1, "a": 2}}', "a member is there twice"),
        (b'{"tool": "t", "arguments": []}', "arguments is [], expected a mapping"),
        (b'{"tool": "t", "arguments": {"a": NaN}}', "not a JSON number"),
        (b'{"tool": "t", "arguments": {"a": 1e999}}', "1e999 is no number that a float holds"),
        (b'{"tool": "t", "arguments": {"a": [-2.5E+400]}}', "-2.5E+400 is no number"),
        (b'{"tool": "t", "arguments": {"a": "\\ud800"}}', "not valid Unicode"),
        (b'{"tool": "t", "request": 1}', "request is 1, expected text"),
        (b'{"tool": "t", "memories": "m1"}', "memories is 'm1', expected a list"),
        (b'{"tool": "t", "outputs": [{"tool": "x"}]}', "outputs[0].text is missing"),
        (b'{"tool": "t", "outputs": [{"tool": "x", "text": "y", "label": "trusted"}]}', "field 'label' of outputs[0]"),
        (b'{"tool": "t", "executed": [3]}', "executed[0] is 3, expected an object with tool"),
        (b'{"tool": "t", "trusted": true}', "unknown field 'trusted'"),
        (b'{"tool": "t", "memories": [%s]}' % b",".join([b'"m"'] * 10_001), "a list of texts, 0 to 10,000"),
        (b'{"tool": "t", "memories": [""]}', "memories[0] is '', expected text, not empty"),
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
