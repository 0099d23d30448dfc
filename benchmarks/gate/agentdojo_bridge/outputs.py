"""Tool outputs as the gate's sources: one text per field, labelled by who can write there (`policy/outputs.yaml`).

The gate's policy trusts outputs by name. Here a field that insiders write keeps the tool's name, and everything else is
given to the gate as `TOOL (external)`, so that an untrusted field can never borrow its tool's trust.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from memory_audit.gate.call import ToolOutput

if TYPE_CHECKING:
    from benchmarks.gate.agentdojo_bridge.verdict import Returned

__all__ = ["EXTERNAL", "POLICY", "SafeLoader", "load_layout", "sources"]

POLICY = Path(__file__).parent / "policy"
EXTERNAL = " (external)"
ALL = "*"
ITEM = "item"

SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WORDS = re.compile(r"[-_ ]+")


def load_layout(suite: str) -> Mapping[str, Mapping[str, Any]]:
    """Layouts of one suite's tools."""
    layouts: Mapping[str, Mapping[str, Any]] = yaml.load((POLICY / "outputs.yaml").read_text(), Loader=SafeLoader)  # noqa: S506
    return layouts[suite]


def sources(returned: Returned, layout: Mapping[str, Mapping[str, Any]]) -> tuple[ToolOutput, ...]:
    """Split one tool output into what the gate is told; what does not parse as it should is external as a whole."""
    rules = layout.get(returned.tool, {})
    if rules.get("echo"):
        return ()
    form = rules.get("format", "text")
    names = [str(returned.arguments.get(name.removeprefix("argument."), "")) for name in _arguments(rules)]
    if form == "text":
        return (_output(returned.tool, returned.text, trusted=ALL in rules.get("trusted", ()), names=names),)
    value = _parsed(returned.text, form)
    if value is None:
        return (_output(returned.tool, returned.text, trusted=False, names=names),)
    records = value if isinstance(value, list) else [value]
    found: list[ToolOutput] = []
    for record in records:
        fields = record if isinstance(record, Mapping) else {ITEM: record}
        found += _fields(returned.tool, fields, rules, names)
    return tuple(found)


def _fields(tool: str, fields: Mapping[str, Any], rules: Mapping[str, Any], names: list[str]) -> list[ToolOutput]:
    own_names = [
        *names,
        *(name for field in rules.get("names", ()) if field in fields for name in _spellings(fields[field])),
    ]
    found, external = [], []
    for field, value in fields.items():
        if "split" in rules:
            platform, mark, anyone = str(value).partition(rules["split"])
            found.append(_output(tool, f"{field}\n{platform}", trusted=bool(mark), names=[]))
            external.append(anyone)
            continue
        texts = [str(item) for item in value] if isinstance(value, list) else [str(value)]
        allowed = rules.get("trusted", ())
        shape = rules.get("shape", {}).get(field)
        for text in texts:
            if field in allowed or ALL in allowed or (shape is not None and re.fullmatch(shape, text)):
                found.append(_output(tool, f"{field}\n{text}" if ALL in allowed else text, trusted=True, names=[]))
            else:
                external.append(text)
    if any(external):
        found.append(_output(tool, "\n".join(external), trusted=False, names=own_names))
    return found


def _output(tool: str, text: str, *, trusted: bool, names: list[str]) -> ToolOutput:
    return ToolOutput(tool=tool if trusted else tool + EXTERNAL, text=text, names=tuple(name for name in names if name))


def _arguments(rules: Mapping[str, Any]) -> list[str]:
    return [name for name in rules.get("names", ()) if name.startswith("argument.")]


def _spellings(name: Any) -> list[str]:
    """Return a file's name, and its words without the ending where there are two or more."""
    text = str(name)
    words = _WORDS.sub(" ", text.rpartition(".")[0]).strip()
    return [text, words] if " " in words else [text]


def _parsed(text: str, form: str) -> Any:
    try:
        value = ast.literal_eval(text) if form == "python" else yaml.load(text, Loader=SafeLoader)  # noqa: S506
    except (ValueError, SyntaxError, yaml.YAMLError, RecursionError):
        return None
    return value if isinstance(value, list | Mapping) else None
