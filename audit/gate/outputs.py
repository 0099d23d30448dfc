"""A tool's output as texts of the context: what no outsider can write to, by the gate policy's word, and the rest.

A listed tool (`memory_audit.gate.gate_policy`) is trusted for all that it returns, or within limits:

- `fields` are members of its JSON: a dot leads into an object (`owner.email`), and lists are passed through. Each field
  becomes a text of its own. What is in no such field is external, and so is all of an output that is not JSON as
  `memory_audit.formats.outside_json` reads it.
- `domains` must hold the output's `domain`, which the runtime takes from the channel and never from a text. Nothing is
  cut off for it: customers may have pages of their own at `pages.bank.example`.

That it is so is an assumption, which no gate can check: whoever writes into a listed field is believed. `assumption`
puts it into words, for whoever reads a decision.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from memory_audit.errors import UsageError
from memory_audit.formats import outside_json
from memory_audit.gate.context_text import ContextText

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from memory_audit.gate.call import ToolOutput
    from memory_audit.gate.gate_policy import TrustedOutput

__all__ = ["assumption", "output_texts"]

_NOTHING = object()

_Field = tuple[str, ...]


def output_texts(output: ToolOutput, number: int, listed: str | TrustedOutput | None) -> list[ContextText]:
    """Return the texts that an output comes to: of origin `tool` what is trusted, `external` what is not.

    Args:
        output: As the runtime gave it.
        number: Its place in the context, from 1, for reports.
        listed: Its tool as the policy lists it; None where it does not.
    """
    where = f"output {number} of {output.tool}"
    external = ContextText(output.text, "external", where, beside="\0".join(output.names))
    if listed is None:
        return [external]
    assumes = assumption(listed)
    if not isinstance(listed, str):
        if listed.domains and output.domain.lower() not in listed.domains:
            return [external]
        if listed.fields:
            return _divided(external, {tuple(field.split(".")) for field in listed.fields}, assumes)
    return [ContextText(output.text, "tool", where, beside=external.beside, assumes=assumes)]


def assumption(listed: str | TrustedOutput) -> str:
    """Say in words what a policy assumes that lists a tool."""
    if isinstance(listed, str):
        return f"no outsider can write to what {listed} returns"
    what = f"{', '.join(sorted(listed.fields))} of what" if listed.fields else "what"
    origin = f" from {', '.join(sorted(listed.domains))}" if listed.domains else ""
    return f"no outsider can write to {what} {listed.tool} returns{origin}"


def _divided(external: ContextText, fields: AbstractSet[_Field], assumes: str) -> list[ContextText]:
    """Return a text for each listed field that an output has, and one for the rest of it, if there is any."""
    try:
        value = outside_json.decode(external.text.encode(errors="surrogatepass"), external.where)
    except UsageError:
        return [external]
    found: defaultdict[_Field, list[Any]] = defaultdict(list)
    rest = _rest(value, fields, (), found)
    texts = [
        ContextText("\n".join(map(_written, values)), "tool", f"{'.'.join(field)} of {external.where}", assumes=assumes)
        for field, values in found.items()
    ]
    if rest is not _NOTHING or external.beside:
        written = "" if rest is _NOTHING else _written(rest)
        texts.append(ContextText(written, "external", external.where, beside=external.beside))
    return texts


def _rest(value: Any, fields: AbstractSet[_Field], path: _Field, found: defaultdict[_Field, list[Any]]) -> Any:
    """Return what of a JSON value is in no listed field, or _NOTHING; what is in one is added to `found`."""
    if isinstance(value, list):
        return [rest for item in value if (rest := _rest(item, fields, path, found)) is not _NOTHING] or _NOTHING
    if not isinstance(value, dict):
        return value
    left = {}
    for name, item in value.items():
        here = (*path, name)
        if here in fields:
            found[here].append(item)
        elif (rest := _rest(item, fields, here, found)) is not _NOTHING:
            left[name] = rest
    return left or _NOTHING


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
