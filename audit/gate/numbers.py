"""Numbers that name something, as accounts, cards and telephones have them, whatever stands between their groups.

A reader takes "4111 1111-1111/1111" for one number, so it is one here: of MIN_DIGITS digits or more, and between its
groups any run of blanks, dots, dashes, slashes, underscores, apostrophes, parentheses, plus signs, commas and pictures.

Quantities are written so too ("1,500, 1,200", "0.41 - 0.58"): a number with commas or a decimal point as they have
them, or of two groups as a range is written, may be several of them. Such a one is `listed`: a text that has its digits
in this order has it, and one that nobody wrote is the model's own. Years in a row, and one amount below a million with
two decimals, name nothing.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BREAK", "JOINT", "Found", "digits", "is_years", "numbers", "with_plain_joints"]

MIN_DIGITS = 7
"""A local telephone number has seven. Shorter ones are quantities, mostly."""

MIN_ALONE = 6
"""Digits of a group that names something by itself, and is no part of what stands beside it."""

MAX_ROW = 64
"""Digits of a row that another text may write as one number: no account has more, and a table may have a million."""

BREAK = "\x1c"
"""Stands where something was taken out of a text: a number does not go on behind it."""

JOINT = r"[ \t\n\r\f\v./\\'()+,_\u2013-]"
"""What stands between the groups of a number, in a text `with_plain_joints`."""

_PLAIN = str.maketrans(
    "\u2018\u2019\u02bc\u2032\xb7\u2022\u2027\u2219\u22c5\u30fb\u2044\u2215\u2212\u060c\u3001", "''''......//-,,"
)
_KINDS = {"Z": " ", "Pd": "-", "Pc": "_", "So": "/", "Sk": "/", "M": "/"}
_RUN = re.compile(rf"\d++(?:{JOINT}++\d++)*+")
_GROUP = re.compile(r"\d+")
_BLANKS = re.compile(r"\s+")
_YEARS = re.compile(rf"(?:1[5-9]|20)\d\d(?:{JOINT}+(?:1[5-9]|20)\d\d)*")
_AMOUNT = re.compile(r"\d{2,3}[,.' ]?\d{3}[.,]\d\d")
_APART = re.compile(r"[,.]\s|[\n\t]")
"""Between two entries of a list."""

_LISTED = re.compile(
    r"(?=.*,|.*\.[\d\s])(?!.*[.,]\d{4}|\d+(?:\.\d+){2,}$).*"  # what follows is another one, thousands, cents
    r"|\d+(?:[./+\u2013]| [-/+(\u2013]+ ?)\d+",
    re.DOTALL,
)


class Found(NamedTuple):
    """What identifies something in a text, such as a number."""

    start: int
    end: int
    form: str = ""
    """In which it is compared, as the digits of a number; empty where that is as it is spelt."""

    row: str = ""
    """Digits of all that stands in a row with a number, which another text may write as one; empty past MAX_ROW."""

    listed: bool = False
    """It may be several quantities."""

    names: bool = True
    """False for what identifies nothing, as a date."""


class _Piece(NamedTuple):
    """Groups of digits that look like one number."""

    start: int
    end: int
    digits: int
    groups: int

    @property
    def names(self) -> bool:
        return self.digits >= (MIN_ALONE if self.groups == 1 else MIN_DIGITS)


def numbers(text: str) -> Iterator[Found]:
    """Yield the numbers of a text that name something, in its order. It has no dates; where one was is BREAK."""
    text = with_plain_joints(text)
    for run in _RUN.finditer(text):
        if len(run[0]) >= MIN_ALONE:
            row = digits(run[0])
            row = row if len(row) <= MAX_ROW else ""
            for start, end in _named(text, *run.span()):
                listed = _LISTED.fullmatch(text, start, end) is not None
                yield Found(start, end, digits(text[start:end]), row, listed)


def digits(text: str) -> str:
    """Return the decimal digits of a text as ASCII, whatever their script."""
    return "".join(str(int(character)) for character in text if character.isdecimal())


def is_years(text: str) -> bool:
    """Tell whether a text is a year, or several in a row."""
    return _YEARS.fullmatch(text) is not None


def with_plain_joints(text: str) -> str:
    """Return a text, as long as it is, with an ASCII sign for what may stand between the groups of a number."""
    if text.isascii():
        return text
    table = {ord(one): _joint(one) for one in set(text) if not one.isascii()}
    return text.translate(_PLAIN).translate({code: joint for code, joint in table.items() if joint})


def _joint(character: str) -> str:
    category = unicodedata.category(character)
    if character == "\u2013":  # a range has it
        return ""
    return _KINDS.get(category) or _KINDS.get(category[0], "")


def _named(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield what names something in a run: what does so by itself, and what is too short for it but stands in a row."""
    if _AMOUNT.fullmatch(text, start, end) or _YEARS.fullmatch(text, start, end):
        return
    row: _Piece | None = None
    for piece in (*_pieces(text, start, end), None):
        if piece is None or piece.names:
            for found in (row, piece):
                if found is not None and found.names:
                    yield found.start, found.end
            row = None
        else:
            row = piece if row is None else _together(row, piece)


def _pieces(text: str, start: int, end: int) -> Iterator[_Piece]:
    """Part a run where one number ends and another begins.

    What names something already ends before a group that does so by itself, behind it, and at more than one sign.
    """
    last: _Piece | None = None
    for group in _GROUP.finditer(text, start, end):
        piece = _Piece(group.start(), group.end(), len(group[0]), 1)
        if last is not None:
            joint = text[last.end : piece.start]
            ends = last.names and (last.groups == 1 or len(_BLANKS.sub(" ", joint)) > 1)
            if not (ends or piece.names or _APART.search(joint)):
                last = _together(last, piece)
                continue
            yield last
        last = piece
    if last is not None:
        yield last


def _together(first: _Piece, second: _Piece) -> _Piece:
    return _Piece(first.start, second.end, first.digits + second.digits, first.groups + second.groups)
