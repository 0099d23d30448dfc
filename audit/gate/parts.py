"""What is judged of a free text that a tool is called with: a body, a title, an answer.

No trusted text holds a whole body, and a body need not be any text's: what can do harm in it is what it points to, what
it is named, and what it passes on. Three kinds of parameter say which parts must be authorised:

    prose    what identifies something: e-mail and web addresses, IBANs, codes (six characters or more with a digit),
             and numbers of accounts, cards and telephones, whatever stands between their groups
             (`memory_audit.gate.numbers`); in any spelling that software follows. Dates and times are no codes. A link
             leads elsewhere by a host, by two slashes of either kind with anything behind them, or by a scheme: each
             is an address
    words    the same; and of the rest each word of three characters or more, `follow-up` being one: a title made of
             the user's words and of trusted names
    quotes   each run of three words that an untrusted text has and no authorising text, however either is formatted;
             other runs are the model's own

These are the parts of one reading of a text; `memory_audit.gate.renderings` names the others, and the gate judges each.

Not done: paraphrase. What an attacker's text says in other words than its own passes `quotes`, as does a script
that sets no blanks between words; a short word or number passes `prose`, and so does a number in words; where that
matters, the parameter should not be free text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Literal

from memory_audit.gate import values
from memory_audit.gate.numbers import BREAK, JOINT, Found, digits, is_years, numbers, with_plain_joints

__all__ = ["Identified", "Part", "PartKind", "is_number", "parts"]

PartKind = Literal["prose", "words", "quotes"]

QUOTED_WORDS = 3
"""Two words in a row are often chance (`the hotel`), three with a name among them seldom."""

_YEAR, _DAY_OR_MONTH, _CLOCK = r"(?:1[5-9]|20)\d\d", r"(?:0?[1-9]|[12]\d|3[01])", r"(?:[01]\d|2[0-3]):[0-5]\d"
_DAY = (
    rf"(?:{_YEAR}[-/.](?:0?[1-9]|1[0-2])[-/.]{_DAY_OR_MONTH}(?:[T ]{_CLOCK}(?::[0-5]\d)?)?"
    rf"|{_DAY_OR_MONTH}[-/.]{_DAY_OR_MONTH}[-/.]{_YEAR})"
)
_DATE = re.compile(
    rf"(?<!\d)(?<!\d[-/.])({_DAY}(?:\s?[-/\u2013]\s?{_DAY})?)(?!\d)(?![-/.]\d)"
    r"|\b(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?\s(\d\d?,?\s(?:19|20)\d\d)(?!\d)"
)
# What identifies something is looked for in any spelling, also in one that no trusted text has: it is then refused.
# A browser takes one slash, a backslash or none after the schemes of the web: https:/evil.com leads there too. Two
# slashes alone lead to another host, be it //0x7f.1, and before a host may stand a name of any signs: //'@0x7f.1.
_URL = re.compile(
    r"(?:(?<![^\W_])(?i:https?|ftp|wss?|file):[/\\]*|(?<![\w@./-])(?:[A-Za-z][A-Za-z0-9+.-]{0,30}://|[Ww]{3}\.)"
    r"|(?<![^\W_])(?<![/\\])[/\\]{2,})(?![/\\])[^\w\s]*[^\s<>\"'`]+"
)
_NO_HOST = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?[^\w\[]*")
# Where a renderer takes the target of a link, any scheme counts, also with line breaks in it, which a browser drops; so
# does a mailbox without a dot: <bob@evil>. A style has properties that look like schemes.
_TARGET = re.compile(
    r"(?:\]\([\s<]*|\]:[\s<]*|(?<!style)=\s*[\"'`]?|<)"
    r"((?:[A-Za-z][A-Za-z0-9+.\t\n\r-]{1,40}:|[/\\]{2})[^\w )]*[^\s<>\"'`)][^\s<>\"'`]*)"
    r"|<([^\s<>@]{1,64}@[^\s<>]+)>"
)
_IBAN = re.compile(
    r"(?<![\w-])[A-Za-z]{2}[0-9]{2}{}[A-Za-z0-9]{4}(?:{}(?=[A-Za-z]{0,3}[0-9])[A-Za-z0-9]{4}){1,6}"
    r"(?:{}(?=[A-Za-z]{0,2}[0-9])[A-Za-z0-9]{1,3})?(?![\w-])".replace("{}", JOINT + "{0,8}")
)
# A label is what linkifiers take for one: letters, digits, hyphens, and symbols and marks, for which _STAND_INS stand.
# What stands before an @ belongs to the address, also where it is not spelt as one should be: x!@evil.com.
_STAND_INS = {"S": "\ue000", "M": "\ue001"}
_BYTE = r"(?:25[0-5]|2[0-4]\d|[01]?\d?\d)"
_DOMAIN = re.compile(
    r"(?:[^\s<>\"'`@]{0,64}@|(?<![\w./\ue000\ue001-])\.?|(?<=\.\.)|(?<=//))"
    r"(?:(?:[\w\ue000\ue001-]+\.)+(?:[Xx][Nn]--[\w-]{2,59}|(?:[^\W\d_]\ue001*){2,24})"
    rf"|(?:{_BYTE}\.){{3}}{_BYTE}(?!\.?\d))"
    r"(?:/[^\s<>\"'`]*)?(?!_*[^\W_]|@|-\w)"
)
_CODE = re.compile(r"(?<![\w-])[\w-]{6,}(?![\w-])")
_WORD = re.compile(r"[^\W\d_](?:[\w'’-]*[^\W_])")
_FULL_STOP = re.compile(
    r"(?<=[\w-])\u3002(?=(?:(?![\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])[\w-])+(?!\w))"
)
"""The ideographic full stop where it may be the dot of a host, which browsers take it for: between a word and one that
is not Chinese, Japanese or Korean. Elsewhere it ends a sentence, with no blank after it."""

_Finder = Callable[[str], Iterator[Found]]

_SHORTEST_WORD = 3
_TRAILING = ".,;:!?)]}*_~"
"""What linkifiers do not take for the end of an address."""


class Part(str):
    """A part of a text, in its own spelling."""

    __slots__ = ("form", "listed", "row")
    form: str
    """In which it is compared: of an account or a number only its letters and digits."""

    row: str
    """Digits of all that stands in a row with a number; else its form."""

    listed: bool
    """A number that may be several quantities: one that no text has is the model's own."""


class Identified:
    """The parts of kind `words` of a text that may authorise them."""

    __slots__ = ("_digits", "_forms")

    def __init__(self, text: str) -> None:
        found, rest = _identifiers(text)
        self._forms = frozenset(one.form for one in (*found, *_words(rest)))
        self._digits = f" {' '.join({name for one in found for name in (one.form, one.row) if _is_joined(name)})} "

    def has(self, part: Part) -> bool:
        """Tell whether the text has a part, however either is spelt, or an account that begins or ends with a number.

        Markup may part a number for who sees it as it stands, and not for who sees it rendered.
        """
        form = part.form
        if form in self._forms or not form.isdecimal():
            return form in self._forms
        return any(written in self._digits for written in (f" {form}", f"{form} ", f" {part.row} "))


def is_number(value: str) -> bool:
    """Tell whether a value as a whole is an account, a code or a number: its letters and digits may be anyone's."""
    found = [value] if isinstance(value, Part) else parts(value, "prose")
    return any(part == value.strip() and _is_joined(re.sub("[-_]", "", part.form)) for part in found)


def parts(value: str, kind: PartKind) -> list[Part]:
    """Return the parts of a text to judge, each once, in its own spelling and order.

    The parts of `prose` and `words` are spelt as software reads them: without marks that nobody sees, and a full stop
    is a dot.
    """
    if kind == "quotes":
        tokens = values.words(value)
        runs = (" ".join(tokens[start : start + QUOTED_WORDS]) for start in range(len(tokens) - QUOTED_WORDS + 1))
        return [_part(run) for run in dict.fromkeys(runs)]
    found, rest = _identifiers(value)
    if kind == "words":
        found += _words(rest)
    return list(dict.fromkeys(found))


def _identifiers(text: str) -> tuple[list[Part], str]:
    """Return what identifies something in a text, and the text without it."""
    found: list[Part] = []
    rest = _FULL_STOP.sub(".", text.translate(values.NOTHING_SEEN))
    for find in _FINDERS:
        kept, last = [], 0
        for one in find(rest):
            spelling = rest[one.start : one.end].rstrip(_TRAILING)
            if spelling and one.names:
                found.append(_part(spelling, one))
            if not one.listed:  # a quantity may still be a code by itself
                kept.append(rest[last : one.start])
                last = one.end
        rest = BREAK.join([*kept, rest[last:]])
    return found, rest


def _words(text: str) -> Iterator[Part]:
    return (_part(word) for word in _WORD.findall(text) if len(word) >= _SHORTEST_WORD)


def _is_joined(form: str) -> bool:
    return form.isalnum() and _has_digit(form)


def _part(spelling: str, found: Found | None = None) -> Part:
    part = Part(spelling)
    part.form = (found and found.form) or values.fold(spelling)
    part.row = (found and found.row) or part.form
    part.listed = found is not None and found.listed
    return part


def _matching(
    pattern: re.Pattern[str],
    *,
    only: Callable[[str], bool] = bool,
    form: Callable[[str], str] = lambda _: "",
    seen_as: Callable[[str], str] = str,
    names: bool = True,
) -> _Finder:
    """Return a finder of what a pattern matches.

    Args:
        pattern: Its last group is found, or all of it where it has none.
        only: Tells of a match whether it counts.
        form: In which a match is compared.
        seen_as: What is looked through in place of a text: as long as it, or empty for nothing.
        names: Whether a match identifies something.
    """

    def find(text: str) -> Iterator[Found]:
        for match in pattern.finditer(seen_as(text)):
            if only(match[0]):
                yield Found(*match.span(match.lastindex or 0), form(match[0]), names=names)

    return find


def _spans(kind: values.Kind, form: Callable[[str], str] = lambda _: "") -> _Finder:
    return lambda text: (Found(start, end, form(text[start:end])) for start, end in values.spans(text, kind))


def _account(text: str) -> str:
    return values.squeeze(text, "iban")


def _with_stand_ins(text: str) -> str:
    """Return a text with _STAND_INS for symbols and marks; nothing of one that can have none."""
    if text.isascii():
        return ""
    stand_ins = {ord(one): _STAND_INS.get(unicodedata.category(one)[0]) for one in set(text) if not one.isascii()}
    return text.translate({code: to for code, to in stand_ins.items() if to})


def _has_digit(text: str) -> bool:
    return any(map(str.isdecimal, text))


_FINDERS: tuple[_Finder, ...] = (
    _matching(_URL, only=lambda text: not _NO_HOST.fullmatch(text)),
    _spans("email"),
    _spans("iban", _account),
    _matching(_IBAN, form=_account, seen_as=with_plain_joints),
    _matching(_DOMAIN, seen_as=_with_stand_ins),
    _matching(_DOMAIN),
    _matching(_TARGET),
    _matching(_DATE, names=False),
    _matching(_CODE, only=lambda text: _has_digit(text) and any(map(str.isalpha, text))),
    numbers,
    _matching(_CODE, only=lambda text: _has_digit(text) and not is_years(text), form=digits),
)
"""In the order in which they are asked: what one finds is no part of the next. Web addresses come first: what looks
like an e-mail address in one is a name before the host, and https://bob@x.com@evil.com leads to evil.com."""
