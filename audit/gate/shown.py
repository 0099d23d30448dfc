r"""What a renderer shows of a text with markup: HTML without its tags, joined as a browser joins it, and Markdown.

Tags inside a line and comments vanish, so that `evil<b>.</b>com` is one host; a tag of a block breaks the line. What an
element hides is gone (a script, `hidden`, `display:none`), and an image has its words instead. Of Markdown, BBCode and
what chats use, the marks go, and where a link leads.

Renderers differ on what is a tag, and a text can be written for the difference: so it is read as the HTML standard
does, as CommonMark does, and by its innermost angle brackets alone, each with and without what is hidden. The parser of
the standard library is not used: what it makes of broken tags differs between versions of Python, and in some it takes
quadratic time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["shown"]

_BLOCK_NAMES = """
address article aside blockquote body br caption center col colgroup dd details dialog dir div dl dt fieldset figcaption
figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav noframes ol optgroup
option p plaintext pre search section summary table tbody td tfoot th thead title tr ul xmp
"""
_EMPTY_NAMES = "area base br col embed hr img input link meta param source track wbr"
_BLOCKS, _EMPTY = frozenset(_BLOCK_NAMES.split()), frozenset(_EMPTY_NAMES.split())
_WITHOUT_TEXT = frozenset({"head", "noscript", "script", "style", "template", "title"})
_IN_LINE = re.compile(r"\b(?:inline|contents)\b", re.IGNORECASE)  # display:inline makes a block part of its line
_HIDDEN = re.compile(
    r"[\s\"'/]hidden\b|(?:display|content-visibility)\s*:\s*(?:none|hidden)|visibility\s*:\s*(?:hidden|collapse)"
    r"|font-size\s*:\s*0|opacity\s*:\s*0(?![.\d])",
    re.IGNORECASE,
)
_ALT = re.compile(r"(?:^|[\s\"'/])alt\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE)

# As the HTML standard has it: a quote counts only after an equals sign. Possessive, so that nothing is tried twice.
_VALUE = r"=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+)?+"
_TAG = re.compile(rf"<(/?)([A-Za-z][^\s/>]*+)((?:[^>=]|{_VALUE})*+)>")
# As CommonMark has it, which takes less for a tag. What either takes for one that the other shows may part two names.
_PLAIN_TAG = re.compile(
    r"<(/?)([A-Za-z][A-Za-z0-9-]*+)"
    r"((?:\s++[A-Za-z_:][\w.:-]*+(?:\s*+=\s*+(?:[^\s\"'=<>`]++|'[^']*+'|\"[^\"]*+\"))?+)*+)\s*+/?>"
)
_PLAIN_NO_TAG = re.compile(r"<(?:\?|![A-Za-z])[^>]*+>")
_INNERMOST = re.compile(r"<(/?)([A-Za-z!?][^\s<>/]*+)([^<>]*+)>")
_BEGINNING = re.compile(r"</?[A-Za-z]")
_NO_TAG = re.compile(r"<(?:[!?]|/(?![A-Za-z]))[^>]*+>")
_COMMENT_END = re.compile(r"--!?>")

_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*+\])*+)\]\((?:[^()]|\([^()]*+\))*+\)")
_REFERENCE = re.compile(r"!?\[([^\[\]]*+)\]\[[^\[\]]*+\]")
_BRACKET = re.compile(r"!?\[|\](?!:)")
_CODE = re.compile(r"(?<!`)(`++)([^`]++)(?<!`)\1(?!`)")
_BB_TAG = re.compile(r"\[/?[A-Za-z]{1,10}(?:=[^\[\]]*+)?\]")
_PARAGRAPHS = re.compile(r"(\n\s*\n)")
_PAIRS = {
    re.compile(rf"{mark}{{{least},}}+"): re.compile(rf"(?<!{mark}){mark}{{{least},}}+{inner}{mark}{{{least},}}")
    for mark, least, inner in (
        ("`", 1, "[^`]++"),
        *((mark, 1, rf"(?=\S)[^{mark}]++(?<=\S)") for mark in (r"\*", "~", r"\^")),
        *((mark, 2, rf"(?=\S)[^{mark}]++(?<=\S)") for mark in (r"\|", "=", r"\+", "'")),
    )
}
"""Marks in a row, and what tells that they come in pairs. Which makes a pair with which, renderers do not agree on."""

_MARK = re.compile(r"[*`~^_]|\|\||==|\+\+|''")
_OPENING, _CLOSING = re.compile(r"(?<!\w)_++(?=\S)"), re.compile(r"(?<=[^\s_])_++(?!\w)")

_GONE = "\ue000"
"""Stands where a tag was while marks are read: it parts words for them. No text means anything by it."""


class _Tag(NamedTuple):
    start: int
    end: int
    closes: bool = False
    name: str = ""
    """In lower case; empty for a comment and the like."""

    attributes: str = ""


def shown(text: str) -> list[str]:
    """Return what renderers may show of a text of any size: with tags about three texts, each perhaps as long as it."""
    found = {_unmarked(text): None}
    for form in _untagged(text) if "<" in text else ():
        found |= {form.replace(_GONE, ""): None, _unmarked(form).replace(_GONE, ""): None}
    return list(found)


def _untagged(text: str) -> Iterator[str]:
    """Yield a text without tags, in every way that differs; where one was, _GONE."""
    ways: list[list[_Tag]] = []
    for tags in (_tags(text, _TAG), _tags(text, _PLAIN_TAG), map(_tag, _INNERMOST.finditer(text))):
        found = list(tags)
        if found not in ways:
            ways.append(found)
    for found in ways:
        yield _without(text, found, hiding=False)
        if any(map(_hides, found)):
            yield _without(text, found, hiding=True)


def _tags(text: str, pattern: re.Pattern[str]) -> Iterator[_Tag]:
    """Yield the comments of a text and the tags that a pattern takes for one, in its order."""
    last, last_comment = text.rfind(">"), max(text.rfind("-->"), text.rfind("--!>"))
    start = text.find("<")
    while -1 < start < last:
        end = start + 1
        if text.startswith("<!--", start) and start + 2 <= last_comment:
            found = _COMMENT_END.search(text, start + 2)
        else:
            found = (_NO_TAG if pattern is _TAG else _PLAIN_NO_TAG).match(text, start)
        if found:
            yield _Tag(start, end := found.end())
        elif found := pattern.match(text, start):
            yield _tag(found)
            end = found.end()
        elif pattern is _TAG and _BEGINNING.match(text, start):
            # A quote that nothing closes: so may all tags that follow have, and each would be read to the end.
            yield from map(_tag, _INNERMOST.finditer(text, start))
            return
        start = text.find("<", end)


def _tag(found: re.Match[str]) -> _Tag:
    return _Tag(found.start(), found.end(), bool(found[1]), found[2].lower(), found[3])


def _without(text: str, tags: Iterable[_Tag], *, hiding: bool) -> str:
    """Return a text without tags, and with what stands for them; hiding: without what is in hidden elements too."""
    rest: list[str] = []
    at, hidden, depth = 0, "", 0
    in_line: set[str] = set()
    for tag in tags:
        if tag.name in _BLOCKS and not tag.closes:
            (in_line.add if _IN_LINE.search(tag.attributes) else in_line.discard)(tag.name)
        if not hidden:
            rest += text[at : tag.start], "\n" if tag.name in _BLOCKS and tag.name not in in_line else _words(tag)
        at = tag.end
        if hidden and tag.name == hidden:
            depth += -1 if tag.closes else 1
            hidden = hidden if depth else ""
        elif hiding and not hidden and _hides(tag):
            hidden, depth = tag.name, 1
    return "".join(rest) if hidden else "".join([*rest, text[at:]])


def _hides(tag: _Tag) -> bool:
    if tag.closes or tag.name in _EMPTY:
        return False
    return tag.name in _WITHOUT_TEXT or (bool(tag.attributes) and _HIDDEN.search(tag.attributes) is not None)


def _words(tag: _Tag) -> str:
    words = _ALT.search(tag.attributes) if tag.name == "img" else None
    return next(filter(None, words.groups()), _GONE) if words else _GONE


def _unmarked(text: str) -> str:
    """Return a text without the marks of Markdown and BBCode, and without where its links lead."""
    if "[" in text:
        text = _LINK.sub(r"\1", _LINK.sub(r"\1", text))  # twice: an image may be a link
        if "[/" in text:
            text = _BB_TAG.sub("", text)
        if "]:" in text:  # it says where other links lead
            text = _BRACKET.sub("", _REFERENCE.sub(r"\1", text))
    if not _MARK.search(text):
        return text
    return "".join(map(_without_pairs, _PARAGRAPHS.split(text)))


def _without_pairs(text: str) -> str:
    if not _MARK.search(text):
        return text
    text = _CODE.sub(lambda code: _unpadded(code[2]), text)
    for mark, pair in _PAIRS.items():
        if pair.search(text):
            text = mark.sub("", text)
    if _OPENING.search(text) and _CLOSING.search(text):
        text = _CLOSING.sub("", _OPENING.sub("", text))
    return text


def _unpadded(code: str) -> str:
    """Return what is shown of code in a line: without one blank at both ends, where it has that."""
    return code[1:-1] if code.strip(" ") and code[0] == code[-1] == " " else code
