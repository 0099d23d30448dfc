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
    iban      in capitals; compared without spaces; a group after a complete one (`… 7034 900 euros`) is no part of it
    date      ISO 8601 days, 2026-11-21
    choice    one of the values that the policy lists
    pattern   whatever matches the policy's regular expression, whole, and not from or to within a word

Not done: resolving what only a reader can ("my landlord", "next Friday"): such a value is found nowhere, and unknown.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal

from memory_audit.text.nfc import few_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "NESTED", "NOTHING_SEEN", "SCALARS", "Kind", "Scalar", "Squeeze", "blanked", "canonical", "fold", "is_numeric",
    "is_plain", "may_offer", "occurs", "offers", "revealed", "spans", "squeeze", "stands_apart", "words",
]  # fmt: skip

Kind = Literal["text", "number", "email", "url", "iban", "date", "choice", "pattern"]
Squeeze = Literal["text", "number", "iban", "words"]
Scalar = str | int | float | bool | None

NESTED, SCALARS = (dict, list), (str, int, float)
"""JSON types. Tuples: `int | float` would make a union anew at each call."""

MAX_VALUE_CHARS = 10_000
"""Longer arguments are bodies, not choices; they are looked up nowhere and stay unknown."""

MAX_COMPARED = 1 << 24
"""Characters compared while one value is looked for in one text. A text that repeats most of a long value all over
would take minutes; at this bound a value is taken for not authorised, and for suspect."""

MAX_DIGITS = 40

_EXACT = Context(prec=2 * MAX_DIGITS + 2)
"""The default context rounds to 28 digits: two ids that differ after those would be one."""

_FULL_GROUPS = {
    country: length
    for length, countries in (
        (16, "BE"),
        (20, "AT BA EE KZ LT LU MN XK"),
        (24, "AD CZ ES MD PK RO SA SE SK TN VG"),
        (28, "AL AZ BY CY DO GT HN HU LB NI PL SV"),
        (32, "LC"),
    )
    for country in countries.split()
}
"""Characters of an IBAN (ISO 13616 registry) in the countries where the last group of four is full. Elsewhere accounts
end with a shorter group, so that what follows cannot be taken for one more."""

_OPENERS = frozenset('"`([{<“‘«„')
_CLOSERS = frozenset('"`)]}>”»')
_STOPS = frozenset(".,;:!?")
_APOSTROPHES = frozenset("'’")
_NO_APOSTROPHES: dict[int, str] = {ord(character): "" for character in _APOSTROPHES}
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_MARKS = (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10))
NOTHING_SEEN: dict[int, None] = dict.fromkeys((*_MARKS, *range(0xE0100, 0xE01F0)))
"""Marks and letters without a glyph: an address with one in it leads where it leads without. For `str.translate`.

They are no reason to refuse a text, as format characters are: emoji are written with them."""

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

_SIGNS: tuple[tuple[Kind, str], ...] = (("iban", ""), ("url", "://"), ("url", "www."), ("email", "@"), ("date", "-"))
"""What a text must have for a kind to be in it: looking for that costs nothing beside the expression.

An account has no such sign."""


def is_plain(value: str) -> bool:
    """Tell whether a text is what it looks like: NFKC, no control, format or unassigned character but line breaks."""
    if value.isascii():
        return value.isprintable() or all(character in "\n\t" or character.isprintable() for character in value)
    return (
        few_marks(value) == value  # a longer run looks like none, and takes a normaliser long
        and unicodedata.is_normalized("NFKC", value)
        and not any(unicodedata.category(character) in _UNSEEN and character not in "\n\t" for character in value)
    )


def fold(text: str) -> str:
    """Lower case, white space folded to single blanks: what `occurs` compares."""
    return " ".join(text.lower().split())


def words(text: str) -> list[str]:
    """Return the words of a text in lower case: runs of letters, digits and their marks; an apostrophe is left out."""
    apart = {ord(character): " " for character in set(text) if not _is_of_a_word(character)}
    return text.translate(apart | _NO_APOSTROPHES).lower().split()


def _is_of_a_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"


def occurs(value: str, text: str) -> bool:
    """Tell whether a folded, non-empty value stands in a folded text between boundaries.

    False, too, where it is found so often without them that MAX_COMPARED is reached.
    """
    return _stands(value, text, lambda start, end: _opens(text, start) and _closes(text, end), given_up=False)


def stands_apart(value: str, text: str) -> bool:
    """Tell whether a folded value stands in a folded text with no letter or digit beside it.

    Far more lenient than `occurs`: for suspecting a value (`file_id=13`), never for authorising it. True, too, where it
    is found so often that MAX_COMPARED is reached.
    """

    def apart(start: int, end: int) -> bool:
        return not (text[max(start - 1, 0) : start].isalnum() or text[end : end + 1].isalnum())

    return bool(value) and _stands(value, text, apart, given_up=True)


def _stands(value: str, text: str, fits: Callable[[int, int], bool], *, given_up: bool) -> bool:
    start, left = text.find(value), MAX_COMPARED
    while start != -1:
        if left <= 0:
            return given_up
        if fits(start, start + len(value)):
            return True
        start, left = text.find(value, start + 1), left - len(value)
    return False


def revealed(text: str) -> str:
    """Return a text in form NFKC without what nobody sees in it, such as the rest of a long run of combining marks."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", few_marks(text))
    hidden = {
        ord(character): None
        for character in set(text)
        if ord(character) in NOTHING_SEEN or unicodedata.category(character) == "Cf"
    }
    return text.translate(hidden) if hidden else text


def squeeze(text: str, how: Squeeze = "text") -> str:
    """Return a text revealed, in lower case and without blanks: for suspecting a value only.

    For `number` thousands are not set apart either and the decimal mark is a point, so that 1.050,00 is 1050.00; for
    `iban` and `words` only letters and digits are left.
    """
    squeezed = "".join(revealed(text).lower().split())
    if how in {"iban", "words"}:
        return "".join(filter(str.isalnum, squeezed))
    return _THOUSANDS.sub("", squeezed).replace(",", ".") if how == "number" else squeezed


_THOUSANDS = re.compile(r"(?<=[0-9])[.,'’_](?=[0-9]{3}(?![0-9]))")


def is_numeric(value: object) -> bool:
    """Tell whether a value is a number: true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def canonical(value: Scalar, kind: Kind, pattern: re.Pattern[str] | None = None) -> str | None:
    """Return the one spelling in which values of a kind are compared, or None where `value` is not of that kind."""
    if kind == "number" or is_numeric(value):
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
        return spelling.replace(" ", "") if _account(spelling) == spelling else None
    return spelling.rstrip("/") if kind == "url" else fold(spelling)


_NUMERIC: frozenset[Kind] = frozenset({"number", "text"})
_AS_IT_STANDS: frozenset[Kind] = frozenset({"text", "choice"})


def may_offer(form: str, kind: Kind, text: str) -> bool:
    """Tell, quickly, whether a text can offer a canonical value at all; False is certain, True is not.

    Finding every address in every memory is what a decision would spend its time on; most texts do not even have the
    characters of the one that is asked for. For kind `email` the text is in lower case, else as written.
    """
    if kind == "number":
        return form.lstrip("-")[0] in text
    if kind == "iban":
        return form in text or (form[:4] in text and form in text.replace(" ", ""))
    return kind == "choice" or form in text


def offers(text: str, kind: Kind, pattern: re.Pattern[str] | None = None, choices: Sequence[str] = ()) -> Iterator[str]:
    """Yield the values of a kind that a text, not folded, holds: in its own spelling and order; none for `text`."""
    if kind == "choice":
        folded = fold(text)
        yield from (choice for choice in choices if occurs(fold(choice), folded))
    elif kind == "pattern" and pattern is not None:
        yield from (found.group() for found in pattern.finditer(text) if _is_whole(found.start(), found.end(), text))
    elif kind in _FINDERS:
        if kind == "number":  # the digits of an account are no amount
            for other, sign in _SIGNS:
                if sign in text:
                    text = blanked(text, other)
        for start, end in spans(text, kind):
            value = text[start:end]
            yield value.rstrip(".,;:!?)]}") if kind == "url" else value


def spans(text: str, kind: Kind) -> Iterator[tuple[int, int]]:
    """Yield where the values start and end that `offers` finds of a kind but `text`, `choice` and `pattern`."""
    finder = _FINDERS[kind]
    found = finder.search(text)
    while found is not None:
        end = found.start() + len(_account(found.group())) if kind == "iban" else found.end()
        yield found.start(), end
        found = finder.search(text, end)


def blanked(text: str, kind: Kind) -> str:
    """Return a text with a blank in place of each value that `spans` finds, where it finds it and nowhere else."""
    rest, last = [], 0
    for start, end in spans(text, kind):
        rest.append(text[last:start])
        last = end
    return " ".join([*rest, text[last:]])


def _account(spelling: str) -> str:
    """Return an IBAN without the groups that follow a complete one: in "BE68 5390 0754 7034 900 euros" it ends at 7034.

    Where its check digits are not right at its country's length it is left as it is: it may be wrong, or made up.
    """
    length = _FULL_GROUPS.get(spelling[:2])
    if length is None or " " not in spelling:
        return spelling
    complete = spelling[: length + length // 4 - 1]  # with the blanks between its groups
    return complete if _checks(complete) else spelling


def _checks(spelling: str) -> bool:
    """Tell whether the check digits are right (ISO 7064, MOD 97-10)."""
    account = spelling.replace(" ", "")
    return int("".join(str(int(character, 36)) for character in account[4:] + account[:4])) % 97 == 1


def _is_whole(start: int, end: int, text: str) -> bool:
    """Tell whether a match is not empty and is cut out of no longer word."""
    return start < end and not any(_WITHIN_WORD.match(text, edge) for edge in (start, end))


_WITHIN_WORD = re.compile(r"(?<=\w)(?=\w)")


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
    return format(_EXACT.add(number.normalize(_EXACT), 0), "f")


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
