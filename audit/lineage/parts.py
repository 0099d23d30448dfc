"""What is judged of a free text that a tool is called with: a body, a title, an answer.

No trusted text holds a whole body, and a body need not be any text's: what can do harm in it is what it points to, what
it is named, and what it passes on. Three kinds of parameter say which parts must be authorised:

    prose    what identifies something: e-mail and web addresses, IBANs, and codes (six characters or more with a
             digit); dates and times are no codes
    words    each word of three characters or more, `follow-up` being one: a title made of the user's words and of
             trusted names
    quotes   each run of three words that an untrusted text has and no authorising text; other runs are the model's own

Not done: paraphrase. What an attacker's text says in other words than its own passes `quotes`, and a short word or
number passes `prose`; where that matters, the parameter should not be free text.
"""

from __future__ import annotations

import re
from typing import Literal

from audit.lineage import values

__all__ = ["PartKind", "parts"]

PartKind = Literal["prose", "words", "quotes"]

QUOTED_WORDS = 3
"""Two words in a row are often chance (`the hotel`), three with a name among them seldom."""

_DATE = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?(?!\d)")
# What identifies something is looked for in any spelling, also in one that no trusted text has: it is then refused.
_URL = re.compile(r"(?<![\w@./-])(?:[A-Za-z][A-Za-z0-9+.-]{0,30}://|[Ww]{3}\.)[^\s<>\"'`]+")
_IBAN = re.compile(
    r"(?<![\w-])[A-Za-z]{2}[0-9]{2}[\s.]?[A-Za-z0-9]{4}(?:[\s.]?(?=[A-Za-z]{0,3}[0-9])[A-Za-z0-9]{4}){1,6}"
    r"(?:[\s.]?(?=[A-Za-z]{0,2}[0-9])[A-Za-z0-9]{1,3})?(?![\w-])"
)
_DOMAIN = re.compile(
    r"(?:(?<![\w@./-])\.?|(?<=\.\.)|(?<=//))(?:[\w-]+\.)+[^\W\d_]{2,24}(?:/[^\s<>\"'`]*)?(?!_*[^\W_]|@|-\w)"
)
_CODE = re.compile(r"(?<![\w-])(?=[\w-]{0,80}\d)[\w-]{6,}(?![\w-])")
_WORD = re.compile(r"[^\W\d_](?:[\w'’-]*[^\W_])")
_IDENTIFIERS: tuple[values.Kind | re.Pattern[str], ...] = ("email", _URL, "iban", _IBAN, _DOMAIN, _DATE, _CODE)
"""In the order in which they are looked for: what one finds is no part of the next."""

_SHORTEST_WORD = 3
_TRAILING = ".,;:!?)]}"


def parts(value: str, kind: PartKind) -> list[str]:
    """Return the parts of a text to judge, each once, in its own spelling and order.

    Args:
        value: As proposed.
        kind: See the module docstring.
    """
    if kind == "words":
        found = [word for word in _WORD.findall(value) if len(word) >= _SHORTEST_WORD]
    elif kind == "quotes":
        tokens = values.fold(value).split(" ")
        found = [
            " ".join(tokens[start : start + QUOTED_WORDS]).strip("\"'.,;:!?()[]{}")
            for start in range(len(tokens) - QUOTED_WORDS + 1)
        ]
    else:
        found, rest = [], value
        for what in _IDENTIFIERS:
            if isinstance(what, str):
                spellings = list(values.offers(rest, what))
                for spelling in spellings:
                    rest = rest.replace(spelling, " ")
            else:
                spellings = [match.group() for match in what.finditer(rest)]
                rest = what.sub(" ", rest)
            if what is not _DATE:
                found += [spelling.rstrip(_TRAILING) for spelling in spellings]
    return list(dict.fromkeys(part for part in found if part))
