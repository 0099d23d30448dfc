r"""What a renderer and a browser make of a text: its readings, in which an address or a word may come to light.

Markdown drops the backslash in `evil\.com` and decodes entities, as HTML does; a browser decodes `evil%2ecom` and takes
a full-width letter for the plain one, and drops tabs and line breaks in an address; tags, and where a link leads, are
not shown. Who will read a text, and in which order, is not known here: all of it is done again until nothing changes,
and every state on the way is a reading.

Not done: what a script or a style sheet in a text makes of it, which have escapes of their own.
"""

from __future__ import annotations

import html
import re
from urllib.parse import unquote

from audit.lineage.values import revealed

__all__ = ["MAX_READINGS", "readings"]

MAX_READINGS = 8
"""Prose has two or three, a link that was escaped twice five. Of a text with as many there may be more, unread ones."""

_ENCODED = ("&", "%", "\\", "<", "](", "/\t", "/\n", "/\r")
"""What a text must have to be read otherwise: looking for that is all that most texts cost."""

_ZEROS = re.compile(r"(?<=&#)0+(?=[0-9])")
_NO_CHARACTER = re.compile(r"&#[0-9]{8,};?")  # `html.unescape` would make a number of thousands of digits
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")  # CommonMark: before ASCII punctuation only
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_SLASHES = re.compile(r"[/\\][/\\\t\n\r]*[/\\][\t\n\r]*")
_UNSHOWN = re.compile(r"</?[A-Za-z!][^<>]*>|\]\([^()]*\)")


def readings(text: str) -> tuple[str, ...]:
    """Return what else a text may be read as, at most MAX_READINGS; the text itself is not among them.

    Args:
        text: Of any size: time and answer grow as it does.
    """
    if not any(mark in text for mark in _ENCODED):
        return ()
    found: list[str] = []
    read, before = text, ""
    while read != before and len(found) < MAX_READINGS:
        before = read
        for step in (_unescaped, _decoded, _joined):
            after = step(read)
            if after != read:
                found.append(after)
            read = after
    shown = _UNSHOWN.sub(" ", read)
    if shown != read:
        found.append(shown)
    return tuple(found[:MAX_READINGS])


def _unescaped(text: str) -> str:
    known = _NO_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", _ZEROS.sub("", text))
    return _ESCAPE.sub(r"\1", html.unescape(known))


def _decoded(text: str) -> str:
    return revealed(_PERCENT.sub(lambda run: unquote(run[0]), text))


def _joined(text: str) -> str:
    return _SLASHES.sub("//", text)
