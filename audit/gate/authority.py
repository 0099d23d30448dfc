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
from typing import TYPE_CHECKING, Any, Literal

from memory_audit.gate import values
from memory_audit.gate.parts import Identified, Part, is_number, parts
from memory_audit.gate.renderings import MAX_STATES, readings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memory_audit.gate.gate_policy import ParameterRule
    from memory_audit.gate.values import Kind, Scalar, Squeeze

__all__ = ["UNTRUSTED", "ContextText", "Finding", "Origin", "has_values", "judge_argument", "repaired_argument"]

Origin = Literal["user", "memory", "tool", "named", "external", "unknown"]

UNTRUSTED: frozenset[Origin] = frozenset({"named", "external"})
"""Written by anyone; what the user named is one of them that a rule may let authorise a value."""

MAX_LEAVES = 1_000
"""Values in one argument; a longer list is refused as a whole."""

MAX_LOOKED_THROUGH = 1 << 31
"""Characters looked through for one argument, its values times the context: two seconds, six for hostile ones. Beyond
it, as with 2,000 words against a context of more than a million characters, the argument is refused as a whole."""

MAX_DEPTH = 20

TOO_DEEP = "\0nested too deep"
"""Stands for what is not looked at; its control character keeps it from being found anywhere."""


_NESTED, _NUMBERS, _SCALARS = (dict, list), (int, float), (str, int, float)
"""Tuples: `int | float` would make a union anew at each call."""

_What = tuple["Kind", "re.Pattern[str] | None", tuple[str, ...]]


class ContextText:
    """One text of the context; folded once, when first compared."""

    __slots__ = (
        "_folded", "_lowered", "_offered", "_read", "_squeezed", "_whole", "_worded", "beside", "identified", "memory",
        "origin", "text", "where",
    )  # fmt: skip

    def __init__(self, text: str, origin: Origin, where: str, memory: str | None = None, beside: str = "") -> None:
        self.text = text
        self.origin = origin
        self.where = where
        """In words, for reports: `the user's request`, `memory m-3`, `output 1 of read_file`."""

        self.memory = memory
        """Entry id, of a memory."""

        self.beside = beside
        """What else its author wrote: names of a record, metadata. It makes a value suspect and authorises none."""

        self.identified = Identified(text)
        self._folded: str | None = None
        self._lowered: str | None = None
        self._worded: str | None = None
        self._whole: str | None = None
        self._read: tuple[ContextText, ...] | None = None
        self._squeezed: dict[Squeeze, str] = {}
        self._offered: dict[_What, tuple[tuple[str, str], ...]] | None = None

    @property
    def folded(self) -> str:
        """The text as `values.occurs` compares it."""
        if self._folded is None:
            self._folded = values.fold(self.text)
        return self._folded

    @property
    def lowered(self) -> str:
        """The text in lower case."""
        if self._lowered is None:
            self._lowered = self.text.lower()
        return self._lowered

    @property
    def worded(self) -> str:
        """The words of the text, whatever stands between them."""
        if self._worded is None:
            self._worded = " ".join(values.words(self.text))
        return self._worded

    @property
    def whole(self) -> str:
        """All that its author wrote, in every reading: for suspecting a value only."""
        if self._whole is None:
            written = f"{self.text}\0{self.beside}" if self.beside else self.text
            self._whole = "\0".join((written, *readings(written).texts))
        return self._whole

    @property
    def read(self) -> tuple[ContextText, ...]:
        """The other readings of the text."""
        if self._read is None:
            texts = readings(self.text).texts
            self._read = tuple(ContextText(text, self.origin, self.where, self.memory) for text in texts)
        return self._read

    def offers(self, rule: ParameterRule) -> tuple[tuple[str, str], ...]:
        """Values of the rule's kind in this text: canonical form and spelling."""
        kind, pattern = rule.kind, rule.pattern
        what = kind, pattern, rule.choices  # not the rule itself: hashing all of its fields costs more than finding
        if self._offered is None:
            self._offered = {}
        found = self._offered.get(what)
        if found is None:
            pairs = []
            for spelling in values.offers(self.text, kind, pattern, rule.choices):
                form = values.canonical(spelling, kind, pattern)
                if form is not None:
                    pairs.append((form, spelling))
            found = self._offered[what] = tuple(pairs)
        return found

    def holds(self, form: str, value: Scalar, rule: ParameterRule) -> bool:
        """Tell whether a value stands in this text.

        Args:
            form: Its canonical form for the rule.
            value: As proposed: a bare number is a number also for kind `text`.
            rule: Of the parameter.
        """
        if rule.kind == "text":
            if isinstance(value, str) and rule.parts == "quotes":
                return values.occurs(form, self.worded)
            if isinstance(value, str):
                return values.occurs(values.fold(value), self.folded) or self.identified.has(value)
            return any(values.canonical(spelling, "number") == form for spelling in values.offers(self.text, "number"))
        if not values.may_offer(form, rule.kind, self.lowered if rule.kind == "email" else self.text):
            return False
        return any(form == offered for offered, _ in self.offers(rule))

    def mentions(self, spellings: Iterable[str], how: Squeeze) -> bool:
        """Tell, leniently and whatever the spacing, whether a text has a value: this only names a suspect.

        Args:
            spellings: Of the value, each as `values.squeeze` makes it.
            how: They were squeezed.
        """
        squeezed = self._squeezed.get(how)
        if squeezed is None:
            squeezed = self._squeezed[how] = values.squeeze(self.whole, how)
        return any(spelling in squeezed for spelling in spellings)

    def rivals(self, form: str) -> bool:
        """Tell whether a value stands anywhere in this text, be it as `file_id=13`.

        Args:
            form: Folded.
        """
        if values.stands_apart(form, self.folded):
            return True
        if self.text.isascii() and self.whole == self.text:
            return False
        return values.stands_apart(form, values.fold(values.revealed(self.whole)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One checked value of one argument."""

    parameter: str
    value: Any
    origin: Origin
    where: str
    """The text that holds it, in words; empty where none does."""

    memory: str | None
    """Entry id, where that text is a memory."""

    authorised: bool

    unread: str = ""
    """Why it was refused without a look at it, in words; empty where it was looked at."""


def has_values(value: Any) -> bool:
    """Tell whether there is anything to judge in an argument: null, and lists and objects of nothing, hold no value."""
    return value is not None and (not isinstance(value, _NESTED) or any(True for _ in _leaves(value, 0)))


def judge_argument(parameter: str, value: Any, rule: ParameterRule, texts: Sequence[ContextText]) -> list[Finding]:
    """Return a finding for each value in an argument; none for null.

    Args:
        parameter: Its name.
        value: A JSON value; of lists and objects every value is judged, and every key of an object.
        rule: Who may choose it.
        texts: The context, in the order in which it is to be named as the origin.
    """
    leaves = list(_leaves(value, 0)) if isinstance(value, _NESTED) else [] if value is None else [value]
    if len(leaves) > MAX_LEAVES:
        why = f"holds more than {MAX_LEAVES:,} values"
        return [_finding(parameter, value, "unknown", None, unread=why)]
    judged: list[Scalar] = leaves
    read: list[Scalar] = []
    if rule.parts is not None:
        judged = []
        for leaf in leaves:
            if not isinstance(leaf, str) or leaf == TOO_DEEP or not values.is_plain(leaf.replace("\r", "\n")):
                judged.append(leaf)
                continue
            others = readings(leaf)
            if not others.complete:
                why = f"has {MAX_STATES} readings or more, one escaped in another"
                return [_finding(parameter, value, "unknown", None, unread=why)]
            judged += parts(leaf, rule.parts)
            read += [part for other in others.texts for part in parts(other, rule.parts)]
        known = set(judged)
        read = [part for part in dict.fromkeys(read) if part not in known]
    if (len(judged) + len(read)) * sum(len(text.whole) for text in texts) > MAX_LOOKED_THROUGH:
        why = "has too many values to look for in a context of this size"
        return [_finding(parameter, value, "unknown", None, unread=why)]
    return [
        *(_judge(parameter, part, rule, texts) for part in judged),
        *(_judge(parameter, part, rule, texts, read=True) for part in read),
    ]


def repaired_argument(
    value: Any, findings: Sequence[Finding], rule: ParameterRule, texts: Sequence[ContextText], others: Iterable[Any]
) -> Any:
    """Return the value that the user authorised in place of `value`, or None where there is not exactly one.

    A list keeps its authorised members. Otherwise the authorities are asked in the rule's order, and the first that
    offers any value of the parameter's kind decides: it must offer exactly one.

    Args:
        value: The argument as proposed.
        findings: Of `judge_argument`.
        rule: Of the parameter.
        texts: The context.
        others: Authorised values of other arguments, which this one must not take: an account is not paid from itself.
            What anyone may choose is not among them, or an attacker would strike out the right candidate.
    """
    if isinstance(value, dict) or rule.parts is not None:  # the parts of a free text are no text to send in its place
        return None
    if isinstance(value, list):
        if any(isinstance(item, _NESTED) for item in value):  # what stands around a value would be lost
            return None
        kept = [finding.value for finding in findings if finding.authorised]
        if kept:
            return kept
    taken = {values.canonical(other, rule.kind, rule.pattern) for other in others if isinstance(other, _SCALARS)}
    for authority in rule.authority:
        if authority in UNTRUSTED:
            continue  # whoever wrote there would choose what becomes of the call
        found: dict[str, str] = {}
        for text in texts:
            if text.origin == authority:
                found |= {form: spelling for form, spelling in text.offers(rule) if form not in taken}
        if len(found) == 1:
            form, spelling = next(iter(found.items()))
            return _like(value, form, spelling, rule)
        if found:
            return None
    return None


def _judge(
    parameter: str, value: Scalar, rule: ParameterRule, texts: Sequence[ContextText], *, read: bool = False
) -> Finding:
    """Judge one value; `read`: it is of another reading of its text, and may be of one of a trusted text."""

    def holds(text: ContextText, form: str) -> bool:
        return text.holds(form, value, rule) or (read and any(other.holds(form, value, rule) for other in text.read))

    authority = rule.authority
    spelling = value.form if isinstance(value, Part) else value
    form = values.canonical(spelling, rule.kind, rule.pattern)
    if form is not None:
        for text in texts:
            if text.origin in authority and holds(text, form):
                rival = _rival(form, value, rule, texts) if rule.exclusive and text.origin != "user" else None
                return _finding(parameter, value, (rival or text).origin, rival or text, authorised=rival is None)
        for text in texts:
            trusted = text.origin not in UNTRUSTED
            if trusted and text.origin not in authority and holds(text, form):
                return _finding(parameter, value, text.origin, text)
    suspect = _suspect(form, value, rule, [text for text in texts if text.origin not in authority])
    if suspect is not None:
        return _finding(parameter, value, suspect.origin, suspect)
    known_authors = all(text.origin in authority for text in texts)
    allowed = rule.unknown == "allow" or (isinstance(value, Part) and value.listed)
    composed = allowed and (not isinstance(spelling, str) or values.is_plain(spelling))
    return _finding(parameter, value, "unknown", None, authorised=known_authors or composed)


def _finding(  # noqa: PLR0913 - what is told of a value
    parameter: str, value: Any, origin: Origin, text: ContextText | None, *, authorised: bool = False, unread: str = ""
) -> Finding:
    return Finding(
        parameter=parameter, value=value, origin=origin, where=text.where if text else "",
        memory=text.memory if text else None, authorised=authorised, unread=unread,
    )  # fmt: skip


def _rival(form: str, value: Scalar, rule: ParameterRule, texts: Sequence[ContextText]) -> ContextText | None:
    """Return an untrusted text that has an authorised value too; any mention counts, however a text was punctuated."""
    spellings = {values.fold(form), values.fold(str(value))}
    return next(
        (
            text
            for text in texts
            if text.origin in UNTRUSTED
            and (text.holds(form, value, rule) or any(text.rivals(spelling) for spelling in spellings))
        ),
        None,
    )


def _suspect(form: str | None, value: Scalar, rule: ParameterRule, texts: Sequence[ContextText]) -> ContextText | None:
    """Return an untrusted text that has a value which no text authorises, in whatever spelling."""
    how: Squeeze = "words" if rule.parts == "quotes" else "text"
    if rule.kind == "iban" or (rule.kind == how == "text" and isinstance(value, str) and is_number(value)):
        how = "iban"
    if rule.kind == "number" or (isinstance(value, _NUMBERS) and not isinstance(value, bool)):
        how = "number"
    spellings = {values.squeeze(str(value), how)}
    if form is not None:
        spellings.add(values.squeeze(form, how))
    if rule.kind == "url":
        spellings = {_SCHEME.sub("", spelling).rstrip("/") for spelling in spellings}
    spellings.discard("")
    held = None if rule.kind == how == "text" else form  # a text that holds a value of kind `text` mentions it too
    return next(
        (
            text
            for text in texts
            if text.origin in UNTRUSTED
            and (text.mentions(spellings, how) or (held is not None and text.holds(held, value, rule)))
        ),
        None,
    )


_SCHEME = re.compile(r"^(?:[a-z]+://)?(?:www\.)?")


def _leaves(value: Any, depth: int) -> Iterator[Scalar]:
    if isinstance(value, _NESTED) and depth == MAX_DEPTH:
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


def _like(value: Any, form: str, spelling: str, rule: ParameterRule) -> Any:
    """Return an authorised value in the type of the proposed one, or None where that type cannot hold it.

    It becomes a number only where the rule wants one.
    """
    if isinstance(value, list):
        like = _like(next(item for item in value if item is not None), form, spelling, rule)
        return None if like is None else [like]
    if rule.kind == "number" and isinstance(value, _NUMBERS) and not isinstance(value, bool):
        number = float(form) if "." in form else int(form)
        return number if values.canonical(number, "number") == form else None  # a float holds 15 digits
    return spelling
