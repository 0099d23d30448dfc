"""Show text that an attacker may have written so that what is read is what is there.

Control characters move a terminal's cursor, bidirectional overrides reorder a line, zero-width characters, tags and
variation selectors hide text from the reader that the model still sees. Here each of them becomes a visible label
(U+202E), a run of the same one is one label (U+200B × 4,000), a pile of combining marks is broken up, and length and
labels are bounded with the rest counted. What is escaped for HTML is decided by the template; nothing here trusts or
changes the letters themselves (confusable letters stay as they are).
"""

from __future__ import annotations

import unicodedata
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from memory_audit.text.invisible import is_invisible

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NAME_CHARS", "TEXT_CHARS", "as_html", "as_line", "runs"]

TEXT_CHARS = 4_000
"""Characters shown of one text: a long screen; the rest is counted, and stays in the snapshot."""

NAME_CHARS = 80
"""Characters shown of an id, a writer or a tenant."""

MAX_MARKS = 3
"""Combining marks shown on one letter: no script in use needs more, and piles of them cover other lines."""

MAX_LABELS = 100
"""Labels in one text: each takes more room than the character it names, and a reader has seen enough by then."""


def runs(text: str, limit: int, *, keep: str = "\n\t") -> Iterator[tuple[str, bool]]:
    """Split text into (piece, hidden) runs: what to show as it is, and labels such as `U+202E` of what cannot be seen.

    Args:
        text: Untrusted.
        limit: Characters shown; of a longer text the last run says how many were left out.
        keep: Control characters that may stay: line breaks where the reader sees lines.
    """
    if text and len(text) <= limit and text.isascii() and text.isprintable():  # most texts of most reports
        yield text, False
        return
    labels = beyond = 0
    for hidden, group in groupby(_seen(text[:limit], keep), key=itemgetter(1)):
        characters = "".join(character for character, _ in group)
        if not hidden:
            yield characters, False
        elif labels == MAX_LABELS:
            beyond += len(characters)
        else:
            labels += 1
            yield _label(hidden, len(characters)), True
    if beyond:
        yield f"… {beyond:,} more hidden characters", True
    if len(text) > limit:
        yield f"… {len(text) - limit:,} more characters", True


def _seen(text: str, keep: str) -> Iterator[tuple[str, str]]:
    """Yield each character, and it again where it cannot be seen."""
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        visible = (character in keep or not is_invisible(character)) and marks <= MAX_MARKS
        yield character, "" if visible else character


def _label(character: str, repeats: int) -> str:
    return f"U+{ord(character):04X}" + (f" × {repeats:,}" if repeats > 1 else "")


def as_line(text: str, limit: int = NAME_CHARS) -> str:
    """Return one line that is safe on a terminal and in a tooltip; hidden characters become `<U+202E>`."""
    shown = text[:limit].replace("\r\n", " ").replace("\n", " ")
    line = "".join(f"<{piece}>" if hidden else piece for piece, hidden in runs(shown, limit, keep=""))
    return f"{line} … {len(text) - limit:,} more characters" if len(text) > limit else line


def as_html(text: str, limit: int = TEXT_CHARS) -> Markup:
    """Return escaped HTML in which hidden characters are `<span class="u">U+202E</span>`."""
    return Markup("").join(
        Markup('<span class="u">{}</span>').format(piece) if hidden else escape(piece)
        for piece, hidden in runs(text, limit)
    )
