"""Unicode form NFC, which signed bytes must have, in time that grows with a text as its size does.

A normaliser sorts the combining marks of each run, and CPython's takes time quadratic in the run for it: 80,000 marks
take seconds. UAX #15 has runs of at most 30 for that reason ("Stream-Safe Text Format"), more than any language writes.
Here a text with a longer run than MAX_MARKS is refused before it is normalised. As there, a mark is what begins with
one when decomposed (NFKD): U+0F73 is of class 0 itself and becomes two marks. Its reader bounds a text's size.
"""

from __future__ import annotations

import unicodedata

from audit.errors import EntryError

__all__ = ["MAX_MARKS", "nfc"]

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
    if text.isascii():
        return text
    marks = {character for character in set(text) if _is_mark(character)}
    run = 0
    for place, character in enumerate(text if marks else ""):
        run = run + 1 if character in marks else 0
        if run > MAX_MARKS:
            raise EntryError(
                f"{where} has more than {MAX_MARKS} combining marks in a row at character {place - MAX_MARKS}"
            )
    return unicodedata.normalize("NFC", text)


def _is_mark(character: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) != 0
