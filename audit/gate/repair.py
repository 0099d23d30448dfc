"""Refusal repair: the call that the user authorised in place of one that is refused, where there is exactly one."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memory_audit.gate import values
from memory_audit.gate.authority import has_values
from memory_audit.gate.call import ToolCall
from memory_audit.gate.context_text import UNTRUSTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_audit.gate.authority import Finding
    from memory_audit.gate.context_text import ContextText
    from memory_audit.gate.gate_policy import ParameterRule, ToolRule

__all__ = ["repaired_call", "substance"]


def repaired_call(
    call: ToolCall,
    rules: Mapping[str, ParameterRule],
    judged: Mapping[str, Sequence[Finding]],
    texts: Sequence[ContextText],
) -> tuple[ToolCall, str] | None:
    """Return the call to make instead, and what changes in words; None where an argument has not exactly one value.

    Args:
        call: As proposed.
        rules: Of the arguments that are checked.
        judged: Their findings.
        texts: The context.
    """
    arguments = dict(call.arguments)
    sound = [name for name, findings in judged.items() if all(finding.authorised for finding in findings)]
    changes = []
    for name, findings in judged.items():
        if name in sound:
            continue
        # An account is not paid from itself. What anyone may choose is not among these, or an attacker would strike out
        # the right candidate.
        others = [arguments[other] for other in sound]
        value = _repaired(arguments[name], findings, rules[name], texts, others)
        if value is None:
            return None
        changes.append(f"{name}: {arguments[name]!r:.80} becomes {value!r:.80}")
        arguments[name] = value
        sound.append(name)
    return ToolCall(tool=call.tool, arguments=MappingProxyType(arguments)), "; ".join(changes)


def _repaired(
    value: Any, findings: Sequence[Finding], rule: ParameterRule, texts: Sequence[ContextText], others: Iterable[Any]
) -> Any:
    """Return the value that the user authorised in place of `value` and not among `others`, if there is exactly one.

    A list keeps its authorised members. Otherwise the authorities are asked in the rule's order, and the first that
    offers any value of the parameter's kind decides: it must offer exactly one.
    """
    if isinstance(value, dict) or rule.parts is not None:  # the parts of a free text are no text to send in its place
        return None
    if isinstance(value, list):
        if any(isinstance(item, values.NESTED) for item in value):  # what stands around a value would be lost
            return None
        kept = [finding.value for finding in findings if finding.authorised]
        if kept:
            return kept
    kind, pattern = rule.value_kind, rule.pattern
    taken = {values.canonical(other, kind, pattern) for other in others if isinstance(other, values.SCALARS)}
    for authority in rule.authority:
        if authority in UNTRUSTED:
            continue  # whoever wrote there would choose what becomes of the call
        offered = [pair for text in texts if text.origin == authority for pair in text.offers(rule)]
        found = {form: spelling for form, spelling in offered if form not in taken}
        if len(found) == 1:
            form, spelling = next(iter(found.items()))
            return _like(value, form, spelling, rule)
        if found:
            return None
    return None


def _like(value: Any, form: str, spelling: str, rule: ParameterRule) -> Any:
    """Return an authorised value in the type of the proposed one, or None where that type cannot hold it.

    It becomes a number only where the rule wants one.
    """
    if isinstance(value, list):
        like = _like(next(item for item in value if item is not None), form, spelling, rule)
        return None if like is None else [like]
    if rule.kind == "number" and values.is_numeric(value):
        number = float(form) if "." in form else int(form)
        return number if values.canonical(number, "number") == form else None  # a float holds 15 digits
    return spelling


def substance(call: ToolCall, rule: ToolRule) -> str:
    """Return one text per call, equal for calls that do the same.

    Values are compared as their kinds are, since an account with blanks in it is the same account; what anyone may
    choose is left out, since another note makes no other payment.
    """
    checked = {
        name: _form(value, parameter)
        for name, value in call.arguments.items()
        if has_values(value) and (parameter := rule.rule(name)) is not None
    }
    return ToolCall(tool=call.tool, arguments=checked).key()


def _form(value: Any, parameter: ParameterRule) -> Any:
    """Return what an argument comes to: of a list each member once, in whatever order, and one alone as itself."""
    if isinstance(value, list):
        forms = [_form(item, parameter) for item in value if item is not None]
        unique = {json.dumps(form, sort_keys=True, default=str): form for form in forms}
        return next(iter(unique.values())) if len(unique) == 1 else [unique[key] for key in sorted(unique)]
    if not isinstance(value, values.SCALARS):
        return value
    form = values.canonical(value, parameter.value_kind, parameter.pattern)
    return value if form is None else form
