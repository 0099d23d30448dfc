r"""What a renderer and a browser make of a text: its readings, in which an address or a word may come to light.

Markdown drops the backslash in `evil\.com` and decodes entities, as HTML does; a browser decodes `evil%2ecom` and takes
a full-width letter for the plain one, and drops tabs and line breaks in an address. Who will read a text, and in which
order, is not known here: all of it is done again until nothing changes, and every state on the way is a reading. So is
what a renderer shows (`memory_audit.gate.shown`) of the text as it stands, decoded or not, and of the last state.

Not done: what a script or a style sheet in a text makes of it, which have escapes of their own.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple
from urllib.parse import unquote

from memory_audit.gate.shown import shown
from memory_audit.gate.values import revealed

__all__ = ["MAX_STATES", "Readings", "readings"]

MAX_STATES = 8
"""States of decoding. Prose has one or two, a link that was escaped twice five. Of a text with as many there may be
more, unread ones."""

_ENCODED = ("&", "%", "\\", "/\t", "/\n", "/\r")
"""What a text must have to be decoded."""

_MARKUP = re.compile(r"[&%\\<\[*`~^_/|=+'](?:(?<=[&%\\<\[*`~^_])|(?<=/)[\t\n\r]|(?<=\|)\||(?<==)=|(?<=\+)\+|(?<=')')")
"""What a text must have to be read otherwise: looking for that is all that most texts cost."""

_ZEROS = re.compile(r"(?<=&#)0+(?=[0-9])")
_NO_CHARACTER = re.compile(r"&#[0-9]{8,};?")  # `html.unescape` would make a number of thousands of digits
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")  # CommonMark: before ASCII punctuation only
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_SLASHES = re.compile(r"[/\\][/\\\t\n\r]*[/\\][\t\n\r]*")


class Readings(NamedTuple):
    """What else a text may be read as; the text itself is not among them."""

    texts: tuple[str, ...] = ()
    complete: bool = True
    """Not where it has MAX_STATES states or more."""


_NONE = Readings()


def readings(text: str) -> Readings:
    """Return what else a text may be read as; time and answer grow as the text does."""
    if not _MARKUP.search(text):
        return _NONE
    states = _states(text)
    seen = dict.fromkeys(states)
    for form in shown(text):
        seen |= {form: None, _states(form)[-1]: None}
    if states[-1] != text:
        seen |= dict.fromkeys(shown(states[-1]))
    del seen[text]
    return Readings(tuple(seen), complete=len(states) <= MAX_STATES)


def _states(text: str) -> list[str]:
    """Return a text and what becomes of it, step by step: about MAX_STATES texts at most."""
    states = [text]
    before = "" if any(mark in text for mark in _ENCODED) else text
    while states[-1] != before and len(states) <= MAX_STATES:
        before = states[-1]
        for step in (_unescaped, _decoded, _joined):
            after = step(states[-1])
            if after != states[-1]:
                states.append(after)
    return states


def _unescaped(text: str) -> str:
    known = _NO_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", _ZEROS.sub("", text))
    return _ESCAPE.sub(r"\1", html.unescape(known))


def _decoded(text: str) -> str:
    return revealed(_PERCENT.sub(lambda run: unquote(run[0]), text))


def _joined(text: str) -> str:
    return _SLASHES.sub("//", text)
