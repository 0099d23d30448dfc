"""Is this value in that text? Strictly: as a whole, in one spelling, and never by way of a character nobody sees.

A value counts as written in a text when it stands there between boundaries: `evil.com` is not in `not-evil.com`, `50`
is not in `1500` or `50.5`, `bob@x.com` is not in `bob@x.com.au`. Compared are spellings with white space folded and in
lower case; a value that is not its own NFKC form, or that has control or format characters, is refused before any
comparison, since what is compared would not be what is executed.

Kinds say what a parameter holds, so that differences of spelling do not count, and so that the values which a trusted
text offers can be listed (the repair needs that):

    text      anything; compared as it stands; offers nothing
    number    50, "50.00", $50 and 1,050 in a text, not inside one of the kinds below; compared as decimals
    email     compared in lower case
    url       compared as it stands, without a trailing slash: paths have two cases
    iban      in capitals; compared without spaces
    date      ISO 8601 days, 2026-11-21
    choice    one of the values that the policy lists
    pattern   whatever matches the policy's regular expression, whole

Not done: resolving what only a reader can ("my landlord", "next Friday"): such a value is found nowhere, and unknown.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Kind", "Scalar", "canonical", "fold", "is_plain", "may_offer", "occurs", "offers"]

Kind = Literal["text", "number", "email", "url", "iban", "date", "choice", "pattern"]
Scalar = str | int | float | bool | None

MAX_VALUE_CHARS = 10_000
"""Longer arguments are bodies, not choices; they are looked up nowhere and stay unknown."""

MAX_DIGITS = 40

_OPENERS = frozenset('"`([{<“‘«„')
_CLOSERS = frozenset('"`)]}>”»')
_STOPS = frozenset(".,;:!?")
_APOSTROPHES = frozenset("'’")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_FINDERS = {
    "number": re.compile(
        r"(?<![\w.,+/-])[-+]?[$€£]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?!\w|[.,][0-9]|-[0-9]|/)"
    ),
    "email": re.compile(r"(?<![\w.@+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)+(?![\w@-])"),
    "url": re.compile(r"(?<![\w@./-])(?:https?://|www\.)[^\s<>\"'`]+"),
    "iban": re.compile(
        r"(?<![\w-])[A-Z]{2}[0-9]{2}(?:[A-Z0-9]{11,30}|(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3})?)(?![\w-])"
    ),
    "date": re.compile(r"(?<![\w-])[0-9]{4}-[0-9]{2}-[0-9]{2}(?![\w-])"),
}

_SIGNS = (("url", "://"), ("url", "www."), ("email", "@"), ("date", "-"))
"""What a text must have for a kind to be in it: looking for that costs nothing beside the expression."""


def is_plain(value: str) -> bool:
    """Tell whether a text is what it looks like: NFKC, no control, format or unassigned character but line breaks."""
    if value.isascii():
        return value.isprintable() or all(character in "\n\t" or character.isprintable() for character in value)
    return unicodedata.is_normalized("NFKC", value) and not any(
        unicodedata.category(character) in _UNSEEN and character not in "\n\t" for character in value
    )


def fold(text: str) -> str:
    """Lower case, white space folded to single blanks: what `occurs` compares."""
    return " ".join(text.lower().split())


def occurs(value: str, text: str) -> bool:
    """Tell whether a folded, non-empty value stands in a folded text between boundaries."""
    start = text.find(value)
    while start != -1:
        end = start + len(value)
        if _opens(text, start) and _closes(text, end):
            return True
        start = text.find(value, start + 1)
    return False


def canonical(value: Scalar, kind: Kind, pattern: re.Pattern[str] | None = None) -> str | None:
    """Return the one spelling in which values of a kind are compared, or None where `value` is not of that kind.

    Args:
        value: An argument, or what `offers` found.
        kind: Not `choice`, which compares as text.
        pattern: Of kind `pattern`.
    """
    if kind == "number" or (isinstance(value, _NUMBERS) and not isinstance(value, bool)):
        return _number(value) if kind in _NUMERIC else None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_VALUE_CHARS or not is_plain(value):
        return None
    if kind in _AS_IT_STANDS:
        return fold(value) or None
    spelling = value.strip()
    if kind == "pattern":
        return spelling if pattern is not None and pattern.fullmatch(spelling) else None
    if not _FINDERS[kind].fullmatch(spelling):
        return None
    if kind == "iban":
        return spelling.replace(" ", "")
    return spelling.rstrip("/") if kind == "url" else fold(spelling)


_NUMBERS = (int, float)
"""A tuple: `int | float` would make a union anew at each call."""

_NUMERIC: frozenset[Kind] = frozenset({"number", "text"})
_AS_IT_STANDS: frozenset[Kind] = frozenset({"text", "choice"})


def may_offer(form: str, kind: Kind, text: str) -> bool:
    """Tell, quickly, whether a text can offer a canonical value at all; False is certain, True is not.

    Finding every address in every memory is what a decision would spend its time on; most texts do not even have the
    characters of the one that is asked for.

    Args:
        form: Canonical.
        kind: Of `form`.
        text: As written; for kind `email` in lower case.
    """
    if kind == "number":
        return form.lstrip("-")[0] in text
    if kind == "iban":
        return form in text or (form[:4] in text and form in text.replace(" ", ""))
    return kind == "choice" or form in text


def offers(text: str, kind: Kind, pattern: re.Pattern[str] | None = None, choices: Sequence[str] = ()) -> Iterator[str]:
    """Yield the values of a kind that a text holds, in its own spelling and order; none for kind `text`.

    Args:
        text: As written, not folded.
        kind: What to look for.
        pattern: Of kind `pattern`.
        choices: Of kind `choice`.
    """
    if kind == "choice":
        folded = fold(text)
        yield from (choice for choice in choices if occurs(fold(choice), folded))
    elif kind == "pattern" and pattern is not None:
        yield from (found.group() for found in pattern.finditer(text))
    elif kind in _FINDERS:
        if kind == "number":  # the digits of an account are no amount
            text = _FINDERS["iban"].sub(" ", text)
            for other, sign in _SIGNS:
                if sign in text:
                    text = _FINDERS[other].sub(" ", text)
        for found in _FINDERS[kind].finditer(text):
            value = found.group()
            yield value.rstrip(".,;:!?)]}") if kind == "url" else value


def _number(value: Scalar) -> str | None:
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    if len(text) > MAX_DIGITS:
        return None
    if isinstance(value, str):
        if not _FINDERS["number"].fullmatch(text) or not is_plain(text):
            return None
        text = text.translate(_ORNAMENT)
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > MAX_DIGITS:
        return None
    return format(number.normalize() + 0, "f")


_ORNAMENT = {ord(character): None for character in ",$€£"}


def _opens(text: str, start: int) -> bool:
    if start == 0 or text[start - 1] == " " or text[start - 1] in _OPENERS:
        return True
    return text[start - 1] == "'" and (start == 1 or not text[start - 2].isalnum())  # a quote, not the ' of O'Brien


def _closes(text: str, end: int) -> bool:
    if end == len(text) or text[end] == " " or text[end] in _CLOSERS:
        return True
    rest = text[end : end + 3]
    if rest[0] in _APOSTROPHES:  # a closing quote, or a possessive, but not the O of O'Brien
        tail = rest[2:] if rest[1:2] == "s" else rest[1:]
        return not tail or not tail[0].isalnum()
    return rest[0] in _STOPS and (len(rest) == 1 or rest[1] in " \"'`)]}>”»’" or rest[1] in _STOPS)
