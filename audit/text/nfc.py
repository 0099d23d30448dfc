"""Unicode form NFC, which signed bytes must have, in time that grows with a text as its size does.

A normaliser sorts the combining marks of each run, and CPython's takes time quadratic in the run for it: 80,000 marks
take seconds. UAX #15 has runs of at most 30 for that reason ("Stream-Safe Text Format"), more than any language writes.
Here a text with a longer run than MAX_MARKS is refused before it is normalised; where what stood between marks is
dropped afterwards, and runs become one, it is cut (`few_marks`). As there, a mark is what begins with one when
decomposed (NFKD): U+0F73 is of class 0 itself and becomes two marks. Its reader bounds a text's size.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from memory_audit.errors import EntryError

__all__ = ["MAX_MARKS", "few_marks", "nfc"]

MAX_MARKS = 64
"""Combining marks in a row: twice what UAX #15 allows, so that nothing is refused that is text."""


def nfc(text: str, where: str) -> str:
    """Return a text in form NFC.

    Args:
        text: Any text, of a size that its reader bounds.
        where: What it is, for the message.

    Raises:
        EntryError: more than MAX_MARKS combining marks in a row.
    """
    runs = _long_runs(text)
    found = runs and runs.search(text)
    if found:
        raise EntryError(f"{where} has more than {MAX_MARKS} combining marks in a row at character {found.start()}")
    return unicodedata.normalize("NFC", text)


def few_marks(text: str) -> str:
    """Return a text with the first MAX_MARKS of every run of combining marks: of more no reader sees anything."""
    runs = _long_runs(text)
    return text if runs is None else runs.sub(lambda run: run[0][:MAX_MARKS], text)


def _long_runs(text: str) -> re.Pattern[str] | None:
    """Return what finds the runs of more than MAX_MARKS of a text's marks; None where it has none at all."""
    marks = () if text.isascii() else sorted(filter(_is_mark, set(text)))
    return re.compile(f"[{re.escape(''.join(marks))}]{{{MAX_MARKS + 1},}}") if marks else None


@lru_cache(maxsize=4096)  # as of `memory_audit.text.invisible`
def _is_mark(character: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) != 0
