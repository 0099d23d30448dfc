"""What the gate is asked: a tool call, and the context that the agent had in front of it. Values only.

As a file (`memaudit gate explain --call`), one JSON object; all but `tool` may be left out:

    {"tool": "send_money", "arguments": {"recipient": "GB29 NWBK 6016 1331 9268 19", "amount": 98.7},
     "request": "Pay the bill…", "memories": ["m-3", "m-9"], "outputs": [{"tool": "read_file", "text": "…"}],
     "executed": [{"tool": "…", "arguments": {…}}]}

A reader MUST reject other members, a number beyond what a float holds, such as `1e999`, a file longer than
MAX_CALL_BYTES, and more items than the limits below.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Context", "ToolCall", "ToolOutput", "parse_question"]

MAX_CALL_BYTES = 8 << 20
"""A long session's tool outputs with room; more is not a question but an attack or a mistake."""

MAX_ITEMS = 10_000
"""Memories, outputs and executed calls of one context, each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that an agent proposes. The arguments are untrusted: whoever wrote the context may have chosen them."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """JSON values by parameter name."""

    def key(self) -> str:
        """One text per call, equal for equal calls."""
        return json.dumps([self.tool, dict(self.arguments)], sort_keys=True, ensure_ascii=False, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What a tool returned in this session; external unless the gate policy trusts the tool's outputs."""

    tool: str
    text: str
    names: tuple[str, ...] = ()
    """Names that this record goes by (a file's name, an address): one in the request makes it a named record, if it is
    no other record's (`memory_audit.gate.names`). Parts of one record belong into one output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything that could have justified a call. The agent's own code fills it, not the model.

    Memories are named, not quoted: the gate takes their text and label from the verified store.
    """

    request: str = ""
    """What the user asked, verbatim: the only text that is trusted as it stands."""

    memories: tuple[str, ...] = ()
    """Entry ids in the prompt."""

    outputs: tuple[ToolOutput, ...] = ()
    executed: tuple[ToolCall, ...] = ()
    """Calls that were carried out in this session: a repair must not do one of them again."""


def parse_question(data: bytes, where: str) -> tuple[ToolCall, Context]:
    """Read a call and its context from JSON.

    Raises:
        UsageError: names `where` and the rule broken.
    """
    if len(data) > MAX_CALL_BYTES:
        raise UsageError(f"{where}: {len(data)} bytes, a call and its context have at most {MAX_CALL_BYTES}")
    record = outside_json.decode(data, where)
    members = _members(record, {"tool", "arguments", "request", "memories", "outputs", "executed"}, where)
    request, memories = members.get("request", ""), members.get("memories", [])
    if not isinstance(request, str):
        raise UsageError(f'{where}: "request" must be text')
    if not _is_list(memories) or not all(isinstance(item, str) and item for item in memories):
        raise UsageError(f'{where}: "memories" must be at most {MAX_ITEMS} entry ids')
    outputs = []
    for number, item in enumerate(_items(members, "outputs", where)):
        output = _members(item, {"tool", "text", "names"}, f"{where}: outputs[{number}]")
        if not all(isinstance(output.get(name), str) for name in ("tool", "text")):
            raise UsageError(f'{where}: outputs[{number}]: "tool" and "text" must be texts')
        names = output.get("names", [])
        if not _is_list(names) or not all(isinstance(name, str) and name for name in names):
            raise UsageError(f'{where}: outputs[{number}]: "names" must be at most {MAX_ITEMS} texts')
        outputs.append(ToolOutput(tool=output["tool"], text=output["text"], names=tuple(names)))
    executed = [
        _call(_members(item, {"tool", "arguments"}, f"{where}: executed[{number}]"), f"{where}: executed[{number}]")
        for number, item in enumerate(_items(members, "executed", where))
    ]
    context = Context(request=request, memories=tuple(memories), outputs=tuple(outputs), executed=tuple(executed))
    return _call(members, where), context


def _call(members: Mapping[str, Any], where: str) -> ToolCall:
    tool, arguments = members.get("tool"), members.get("arguments", {})
    if not isinstance(tool, str) or not tool:
        raise UsageError(f'{where}: "tool" must be the name of the tool to call')
    if not isinstance(arguments, dict):
        raise UsageError(f'{where}: "arguments" must be an object')
    return ToolCall(tool=tool, arguments=arguments)


def _members(value: Any, known: set[str], where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: expected one JSON object")
    unknown = sorted(set(value) - known)
    if unknown:
        raise UsageError(f"{where}: unknown member {unknown[0]!r:.60}; known are {', '.join(sorted(known))}")
    return value


def _items(members: Mapping[str, Any], name: str, where: str) -> list[Any]:
    value = members.get(name, [])
    if not _is_list(value):
        raise UsageError(f'{where}: "{name}" must be a list of at most {MAX_ITEMS} objects')
    return list(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_ITEMS
