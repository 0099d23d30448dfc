"""What is judged of a free text that a tool is called with: a body, a title, an answer.

No trusted text holds a whole body, and a body need not be any text's: what can do harm in it is what it points to, what
it is named, and what it passes on. Three kinds of parameter say which parts must be authorised:

    prose    what identifies something: e-mail and web addresses, IBANs, and codes (six characters or more with a
             digit), in any spelling that software follows; dates and times are no codes. A link leads elsewhere by a
             host, by two slashes of either kind with anything behind them, or by a scheme: each is an address
    words    each word of three characters or more, `follow-up` being one: a title made of the user's words and of
             trusted names
    quotes   each run of three words that an untrusted text has and no authorising text, however either is formatted;
             other runs are the model's own

These are the parts of one reading of a text; `audit.lineage.readings` names the others, and the gate judges each.

Not done: paraphrase. What an attacker's text says in other words than its own passes `quotes`, as does a script
that sets no blanks between words, and a short word or number passes `prose`; where that matters, the parameter should
not be free text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from audit.lineage import values

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PartKind", "parts"]

PartKind = Literal["prose", "words", "quotes"]

QUOTED_WORDS = 3
"""Two words in a row are often chance (`the hotel`), three with a name among them seldom."""

_DATE = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?(?!\d)")
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
    r"(?<![\w-])[A-Za-z]{2}[0-9]{2}[\s.]?[A-Za-z0-9]{4}(?:[\s.]?(?=[A-Za-z]{0,3}[0-9])[A-Za-z0-9]{4}){1,6}"
    r"(?:[\s.]?(?=[A-Za-z]{0,2}[0-9])[A-Za-z0-9]{1,3})?(?![\w-])"
)
# What stands before an @ belongs to the address, also where it is not spelt as one should be: x!@evil.com.
_DOMAIN = re.compile(
    r"(?:[^\s<>\"'`@]{0,64}@|(?<![\w./-])\.?|(?<=\.\.)|(?<=//))"
    r"(?:(?:[\w-]+\.)+[^\W\d_]{2,24}|(?:\d{1,3}\.){3}\d{1,3}(?!\.\d))(?:/[^\s<>\"'`]*)?(?!_*[^\W_]|@|-\w)"
)
_CODE = re.compile(r"(?<![\w-])(?=[\w-]{0,80}\d)[\w-]{6,}(?![\w-])")
_WORD = re.compile(r"[^\W\d_](?:[\w'’-]*[^\W_])")
_IDENTIFIERS: tuple[values.Kind | re.Pattern[str], ...] = (
    _URL, "email", "iban", _IBAN, _DOMAIN, _TARGET, _DATE, _CODE,
)  # fmt: skip
"""In the order in which they are looked for: what one finds is no part of the next. Web addresses come first: what
looks like an e-mail address in one is a name before the host, and https://bob@x.com@evil.com leads to evil.com."""

_FULL_STOP = re.compile(
    r"(?<=[\w-])\u3002(?=(?:(?![\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])[\w-])+(?!\w))"
)
"""The ideographic full stop where it may be the dot of a host, which browsers take it for: between a word and one that
is not Chinese, Japanese or Korean. Elsewhere it ends a sentence, with no blank after it."""

_SHORTEST_WORD = 3
_TRAILING = ".,;:!?)]}"


def parts(value: str, kind: PartKind) -> list[str]:
    """Return the parts of a text to judge, each once, in its own spelling and order.

    The parts of `prose` are spelt as software reads them: without marks that nobody sees, and a full stop is a dot.

    Args:
        value: As proposed.
        kind: See the module docstring.
    """
    if kind == "words":
        found = [word for word in _WORD.findall(value) if len(word) >= _SHORTEST_WORD]
    elif kind == "quotes":
        tokens = values.words(value)
        found = [" ".join(tokens[start : start + QUOTED_WORDS]) for start in range(len(tokens) - QUOTED_WORDS + 1)]
    else:
        found, rest = [], _FULL_STOP.sub(".", value.translate(values.NOTHING_SEEN))
        for what in _IDENTIFIERS:
            if isinstance(what, str):
                spellings = list(values.offers(rest, what))
                rest = values.blanked(rest, what)
            else:
                matches = [
                    match for match in what.finditer(rest) if what is not _URL or not _NO_HOST.fullmatch(match[0])
                ]
                spellings = [match.group(match.lastindex or 0) for match in matches]
                rest = _without(matches, rest)
            if what is not _DATE:
                found += [spelling.rstrip(_TRAILING) for spelling in spellings]
    return list(dict.fromkeys(part for part in found if part))


def _without(matches: Sequence[re.Match[str]], text: str) -> str:
    kept, last = [], 0
    for match in matches:
        kept.append(text[last : match.start()])
        last = match.end()
    return " ".join([*kept, text[last:]])
