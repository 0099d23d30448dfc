"""Markdown memory as passages: what an agent would call one memory, where its bytes lie, and what names it.

A passage is a list item with what is indented below it, a paragraph, a heading, a table, a block of code, or the whole
file where that begins with frontmatter, as each memory of Claude Code and of Letta's MemFS does. Every line that is not
blank is in one, as the agent reads them all: also link definitions, and comments that nobody's program wrote.

A passage is named by the key that OpenClaw wrote above it (`openclaw-memory-promotion`), else by the digest of its
text: in Unicode form NFKC, with white space folded and without OpenClaw's comments. So a line that is inserted above
changes no name, which line numbers and ids of chunks do not survive. Equal texts have one name. A key that stands above
several texts names none of them: a name that moved on when one of them went would name what is to stay.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from markdown_it.token import Token

__all__ = ["MAX_FILE_BYTES", "Passage", "name_of", "passages", "without"]

MAX_FILE_BYTES = 4 << 20
"""An agent is shown kilobytes of such a file."""

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_KNOWN = re.compile(
    r"<!--\s*(?:openclaw-memory-promotion|openclaw-memory-lineage|trigger|importance|project)\s*:[^\r\n]*?-->"
)
_KEY = re.compile(r"<!--\s*openclaw-memory-promotion:(\S{1,512})\s*-->")
_FRONTMATTER = re.compile(r"---[ \t]*\n(?:.*?\n)??---[ \t]*(?:\n|\Z)", re.DOTALL)
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One memory of a Markdown file."""

    name: str
    """In its file; of equal passages the same."""

    text: str
    """As the agent reads it, without OpenClaw's comments."""

    comments: tuple[str, ...]
    """These: the agent reads them, too."""

    heading: str
    """The nearest one above, as it is written; empty where there is none."""

    start: int
    end: int
    """Its bytes in the file, comments above it and the end of its last line included."""


def passages(data: bytes, where: str) -> list[Passage]:
    """Cut a file into its passages, in order.

    Args:
        data: The file.
        where: Names it in errors.

    Raises:
        UsageError: too large, or not UTF-8.
    """
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{where}: {len(data)} bytes, and {MAX_FILE_BYTES} are read of a Markdown file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8 (byte {error.start})") from None
    lines = _LINE.findall(data)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found = []
    for heading, above, first, last in _blocks(text, lines):
        raw = data[starts[above] : starts[last]].decode().removeprefix(_BOM)
        shown = _KNOWN.sub("", raw).strip() or raw.strip()
        if not shown:
            continue
        key = _KEY.search(data[starts[above] : starts[first]].decode())
        found.append(
            Passage(
                name=name_of(shown) if key is None else key[1], text=shown, comments=tuple(_KNOWN.findall(raw)),
                heading=heading, start=starts[above], end=starts[last],
            )
        )  # fmt: skip
    texts: dict[str, set[str]] = {}
    for passage in found:
        texts.setdefault(passage.name, set()).add(passage.text)
    return [
        passage if len(texts[passage.name]) == 1 else replace(passage, name=name_of(passage.text)) for passage in found
    ]


def without(data: bytes, where: str, names: Collection[str]) -> bytes:
    """Return a file without some of its passages, and every other byte as it is.

    Where two passages would become one, a line is left blank between them.

    Raises:
        UsageError: as `passages`; or the others would not stay as they are.
    """
    found = passages(data, where)
    gone = [passage for passage in found if passage.name in names]
    stay = [passage.text for passage in found if passage.name not in names]
    for left in (b"", b"\n"):
        kept, end = [], 0
        for passage in gone:
            kept += [data[end : passage.start], left]
            end = passage.end
        cut = b"".join([*kept, data[end:]])
        if [passage.text for passage in passages(cut, where)] == stay:
            return cut
    raise UsageError(f"{where}: what is to go cannot be cut out and leave the rest as it is: edit the file by hand")


def _blocks(text: str, lines: Sequence[bytes]) -> Iterator[tuple[str, int, int, int]]:
    """Yield heading, first line of the comments above, first line, and the line after the last, of each passage."""
    plain = re.sub(r"\r\n?", "\n", text.removeprefix(_BOM))  # the line ends of Markdown, as `_LINE`
    if _FRONTMATTER.match(plain):
        yield "", 0, 0, len(lines)
        return
    heading, above = "", None
    for kind, title, first, last in _filled(MarkdownIt("commonmark").enable("table").parse(plain), lines):
        if kind == "html_block" and not _KNOWN.sub("", _text(lines, first, last)).strip():
            above = first if above is None else above
            continue
        yield heading, first if above is None else above, first, last
        heading, above = title or heading, None
    if above is not None:
        yield heading, above, above, _end(lines, above, len(lines))


def _filled(tokens: Sequence[Token], lines: Sequence[bytes]) -> Iterator[tuple[str, str, int, int]]:
    """Yield kind, title of a heading, first line and the line after the last, of every block and of what is in none."""
    done = 0
    for place, token in enumerate(tokens):
        if token.map is None or not _is_block(token):
            continue
        first, last = max(token.map[0], done), _end(lines, token.map[0], token.map[1])
        yield from _rest(lines, done, first)
        if token.type != "hr" and last > first:
            title = tokens[place + 1].content if token.type == "heading_open" else ""
            yield token.type, title, first, last
        done = max(done, last)
    yield from _rest(lines, done, len(lines))


def _rest(lines: Sequence[bytes], first: int, last: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield runs of lines that are not blank."""
    for number in range(first, last):
        if lines[number].strip() and (number == first or not lines[number - 1].strip()):
            end = next((after for after in range(number, last) if not lines[after].strip()), last)
            yield "rest", "", number, end


def _is_block(token: Token) -> bool:
    """Tell whether a token opens a passage: an item of an outer list, or a block that is in no other."""
    if token.type == "list_item_open":
        return token.level == 1
    return token.level == 0 and token.type not in {"bullet_list_open", "ordered_list_open"}


def _end(lines: Sequence[bytes], first: int, last: int) -> int:
    """Return the line after the last one that is not blank."""
    last = min(last, len(lines))
    while last > first and not lines[last - 1].strip():
        last -= 1
    return last


def _text(lines: Sequence[bytes], first: int, last: int) -> str:
    return b"".join(lines[first:last]).decode()


def name_of(shown: str) -> str:
    """Return what a text is named by that has no other name."""
    folded = " ".join(unicodedata.normalize("NFKC", shown).split())
    return hashlib.sha256(folded.encode()).hexdigest()[:24]
