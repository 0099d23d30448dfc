"""Parameter-level authority: who wrote the value that a tool is about to be called with.

The coarse question, "is anything untrusted in the context", refuses an agent that reads its mail. The finer one asks of
each sensitive argument whether a text that may authorise it holds the value (`memory_audit.gate.values` says what
holding means), and names where it came from otherwise:

    user, memory, tool   a text of that authority holds it: the request, a trusted memory, a trusted tool's output
    named                an untrusted output does whose record the user named, or a trusted output did
    external             no such text does, an untrusted one does
    unknown              no text holds it: the model composed it

A value in a trusted text is authorised even where an attacker's text has it too. Whether an untrusted text has it is
asked leniently, in any spacing and any spelling of its kind, and of a record's names and a memory's metadata too, which
authorise nothing: a miss there would make an attacker's value look composed. So is what a renderer or a browser makes
of it (`memory_audit.gate.renderings`); of a free text each reading is judged, and found in a reading of a trusted text
too. An unknown value was made of what the context held, possibly of an untrusted text in disguise (spelt backwards, in
base 64), so it is authorised only where every text in the context could have authorised it, the rule lets the model
compose the value (`unknown: allow`), or it is written as quantities are (`memory_audit.gate.numbers`).

Not decided here: whether the user meant *this* value for *this* parameter. Where the request names two accounts, one to
pay and one to avoid, both are the user's words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory_audit.gate import values
from memory_audit.gate.context_text import UNTRUSTED, ContextText, Origin
from memory_audit.gate.parts import Part, is_number, parts
from memory_audit.gate.renderings import MAX_STATES, readings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_audit.gate.gate_policy import ParameterRule
    from memory_audit.gate.values import Scalar, Squeeze

__all__ = ["Finding", "has_values", "judge_argument"]

MAX_LEAVES = 1_000
"""Values in one argument; a longer list is refused as a whole."""

MAX_LOOKED_THROUGH = 1 << 31
"""Characters looked through for one argument, its values times the context: two seconds, six for hostile ones. Beyond
it, as with 2,000 words against a context of more than a million characters, the argument is refused as a whole."""

MAX_DEPTH = 20

TOO_DEEP = "\0nested too deep"
"""Stands for what is not looked at; its control character keeps it from being found anywhere."""

_SCHEME = re.compile(r"^(?:[a-z]+://)?(?:www\.)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One checked value of one argument."""

    parameter: str
    value: Any
    origin: Origin
    where: str = ""
    """The text that holds it, in words; empty where none does."""

    memory: str | None = None
    """Entry id, where that text is a memory."""

    authorised: bool = False

    unread: str = ""
    """Why it was refused without a look at it, in words; empty where it was looked at."""


class _UnreadError(Exception):
    """An argument is refused as a whole; says why, in words."""


def has_values(value: Any) -> bool:
    """Tell whether there is anything to judge in an argument: null, and lists and objects of nothing, hold no value."""
    return any(True for _ in _leaves(value, 0))


def judge_argument(parameter: str, value: Any, rule: ParameterRule, texts: Sequence[ContextText]) -> list[Finding]:
    """Return a finding for each value in an argument; none for null.

    Args:
        parameter: Its name.
        value: A JSON value; of lists and objects every value is judged, and every key of an object.
        rule: Who may choose it.
        texts: The context, in the order in which it is to be named as the origin.
    """
    try:
        written, rendered = _judged(value, rule, texts)
    except _UnreadError as why:
        return [Finding(parameter=parameter, value=value, origin="unknown", unread=str(why))]
    return [
        *(_judge_value(parameter, part, rule, texts) for part in written),
        *(_judge_value(parameter, part, rule, texts, rendered=True) for part in rendered),
    ]


def _judged(value: Any, rule: ParameterRule, texts: Sequence[ContextText]) -> tuple[list[Scalar], list[Scalar]]:
    """Return what is judged of an argument as it stands, and what only another reading of its texts has."""
    leaves = list(_leaves(value, 0))
    if len(leaves) > MAX_LEAVES:
        raise _UnreadError(f"holds more than {MAX_LEAVES:,} values")
    written: list[Scalar] = []
    seen: dict[Scalar, None] = {}
    for leaf in leaves:
        if rule.parts is None or not isinstance(leaf, str) or not values.is_plain(leaf.replace("\r", "\n")):
            written.append(leaf)
            continue
        others = readings(leaf)
        if not others.complete:
            raise _UnreadError(f"has {MAX_STATES} readings or more, one escaped in another")
        written += parts(leaf, rule.parts)
        seen |= dict.fromkeys(part for other in others.texts for part in parts(other, rule.parts))
    known = set(written)
    rendered = [part for part in seen if part not in known]
    if (len(written) + len(rendered)) * sum(len(text.whole) for text in texts) > MAX_LOOKED_THROUGH:
        raise _UnreadError("has too many values to look for in a context of this size")
    return written, rendered


def _leaves(value: Any, depth: int) -> Iterator[Scalar]:
    if isinstance(value, values.NESTED) and depth == MAX_DEPTH:
        yield TOO_DEEP
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, depth + 1)
    elif value is not None:
        yield value


def _judge_value(
    parameter: str, value: Scalar, rule: ParameterRule, texts: Sequence[ContextText], *, rendered: bool = False
) -> Finding:
    """Judge one value; `rendered`: it is of another reading of its text, and may be of one of a trusted text."""

    def found(text: ContextText, *, authorised: bool = False) -> Finding:
        return Finding(
            parameter=parameter, value=value, origin=text.origin, where=text.where, memory=text.memory,
            authorised=authorised,
        )  # fmt: skip

    authority = rule.authority
    spelling = value.form if isinstance(value, Part) else value
    form = values.canonical(spelling, rule.value_kind, rule.pattern)
    if form is not None:
        for text in sorted(texts, key=lambda text: text.origin not in authority):
            may = text.origin in authority
            if (may or text.origin not in UNTRUSTED) and text.holds(form, value, rule, rendered=rendered):
                contested = may and rule.exclusive and text.origin != "user"
                rival = _rival(form, value, rule, texts) if contested else None
                return found(rival or text, authorised=may and rival is None)
    suspect = _suspect(form, value, rule, [text for text in texts if text.origin not in authority])
    if suspect is not None:
        return found(suspect)
    known_authors = all(text.origin in authority for text in texts)
    allowed = rule.composes or (isinstance(value, Part) and value.listed)
    composed = allowed and (not isinstance(spelling, str) or values.is_plain(spelling))
    return Finding(parameter=parameter, value=value, origin="unknown", authorised=known_authors or composed)


def _rival(form: str, value: Scalar, rule: ParameterRule, texts: Sequence[ContextText]) -> ContextText | None:
    """Return an untrusted text that has an authorised value too; any mention counts, however a text was punctuated."""
    spellings = {values.fold(form), values.fold(str(value))}
    for text in texts:
        if text.origin in UNTRUSTED and (text.holds(form, value, rule) or any(map(text.rivals, spellings))):
            return text
    return None


def _suspect(form: str | None, value: Scalar, rule: ParameterRule, texts: Sequence[ContextText]) -> ContextText | None:
    """Return an untrusted text that has a value which no text authorises, in whatever spelling."""
    kind = rule.value_kind
    how: Squeeze = "words" if rule.kind == "quotes" else "text"
    if kind == "iban" or (kind == how == "text" and isinstance(value, str) and is_number(value)):
        how = "iban"
    if kind == "number" or values.is_numeric(value):
        how = "number"
    spellings = {values.squeeze(str(value), how)}
    if form is not None:
        spellings.add(values.squeeze(form, how))
    if kind == "url":
        spellings = {_SCHEME.sub("", spelling).rstrip("/") for spelling in spellings}
    spellings.discard("")
    held = None if kind == how == "text" else form  # a text that holds a value of kind `text` mentions it too
    for text in texts:
        if text.origin not in UNTRUSTED:
            continue
        if text.mentions(spellings, how) or (held is not None and text.holds(held, value, rule)):
            return text
    return None
