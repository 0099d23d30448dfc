"""What the gate is asked: a tool call, and the context that the agent had in front of it. Values only.

As a file (`memaudit gate explain --call`), one JSON object; all but `tool` may be left out:

    {"tool": "send_money", "arguments": {"recipient": "GB29 NWBK 6016 1331 9268 19", "amount": 98.7},
     "request": "Pay the bill…", "memories": ["m-3", "m-9"],
     "outputs": [{"tool": "read_page", "text": "…", "names": ["bill.txt"], "domain": "bank.example"}],
     "executed": [{"tool": "…", "arguments": {…}}]}

A reader MUST reject other members, a number beyond what a float holds, such as `1e999`, a file longer than
MAX_CALL_BYTES, and more items than the limits below.
"""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.formats.members import Name  # noqa: TC001 - as above
from memory_audit.formats.records import convert

__all__ = ["Context", "ToolCall", "ToolOutput", "parse_question"]

MAX_CALL_BYTES = 8 << 20
"""A long session's tool outputs with room; more is not a question but an attack or a mistake."""

MAX_ITEMS = 10_000
"""Memories, outputs and executed calls of one context, each."""

AtMost = msgspec.Meta(max_length=MAX_ITEMS)


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that an agent proposes. The arguments are untrusted: whoever wrote the context may have chosen them."""

    tool: Name
    arguments: Mapping[str, Any] = MappingProxyType({})
    """JSON values by parameter name."""

    def key(self) -> str:
        """One text per call, equal for equal calls."""
        return json.dumps([self.tool, dict(self.arguments)], sort_keys=True, ensure_ascii=False, default=str)


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool returned in this session; external unless the gate policy trusts the tool's outputs."""

    tool: str
    text: str
    names: Annotated[tuple[Name, ...], AtMost] = ()
    """Names that this record goes by (a file's name, an address): one in the request makes it a named record, if it is
    no other record's (`memory_audit.gate.names`). Parts of one record belong into one output."""

    domain: str = ""
    """Host that it came from, as the runtime knows it by the channel: of the web address in the end, of the verified
    sender. Never what a text says; empty where nothing vouches for one."""


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that could have justified a call. The agent's own code fills it, not the model.

    Memories are named, not quoted: the gate takes their text and label from the verified store.
    """

    request: str = ""
    """What the user asked, verbatim: the only text that is trusted as it stands."""

    memories: Annotated[tuple[Name, ...], AtMost] = ()
    """Entry ids in the prompt."""

    outputs: Annotated[tuple[ToolOutput, ...], AtMost] = ()
    executed: Annotated[tuple[ToolCall, ...], AtMost] = ()
    """Calls that were carried out in this session: a repair must not do one of them again."""


def parse_question(data: bytes, where: str) -> tuple[ToolCall, Context]:
    """Read a call and its context from JSON.

    Raises:
        UsageError: names `where` and the rule broken.
    """
    if len(data) > MAX_CALL_BYTES:
        raise UsageError(f"{where}: {len(data)} bytes, a call and its context have at most {MAX_CALL_BYTES}")
    record = outside_json.decode(data, where)
    if not isinstance(record, dict):
        raise UsageError(f"{where}: expected one JSON object")
    call = {name: record.pop(name) for name in ("tool", "arguments") if name in record}
    return convert(call, ToolCall, where), convert(record, Context, where)
