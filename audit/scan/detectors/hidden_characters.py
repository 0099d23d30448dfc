"""Characters that a person does not see or takes for others, while a model reads what they are.

Looked for are text in tag characters (U+E0020 to U+E007E) and in runs of other invisible ones, which can spell any
bytes; overrides of direction (Boucher and Anderson 2021, "Trojan Source"); words of look-alike letters (UTS #39); and
single invisible characters. Left alone are those that writing needs: joiners among letters beyond ASCII, one variation
selector after a sign, marks of direction in a text that has letters written from right to left, flags of regions.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from memory_audit.guard.text.forms import visible
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import finding_about, shown_text
from memory_audit.text.invisible import is_invisible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory
    from memory_audit.scan.finding import Finding

__all__ = ["HiddenCharacters"]

MIN_RUN = 8
"""Invisible characters in a row, not all the same, that can spell a byte."""

MIN_WORD = 4
"""Letters of a word whose look-alikes are told: shorter ones are symbols of formulas ("ρgh")."""

MAX_SHOWN = 5
MAX_SHOWN_CHARACTERS = 80

_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_TAGS = re.compile("[\U000e0020-\U000e007e]+")
_OVERRIDES = re.compile("[\u202d\u202e]")
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u2066\u2067\u2068\u2069")
_JOINERS = frozenset("\u200c\u200d")
_SEEN = frozenset({"Co", "Cn", "Cs", "Zl", "Zp"})
"""Categories that `is_invisible` counts and a screen shows: a sign of some font, a box, the end of a line."""

_LEFTWARD = frozenset({"R", "AL", "RLO", "LRO"})
"""Classes of UAX #9: letters written from right to left, and overrides, which are told as such."""

_SELECTORS = re.compile("[\ufe00-\ufe0f\u180b-\u180f\U000e0100-\U000e01ef]")
_WORD = re.compile(r"\w+")
_LATIN = re.compile("[A-Za-z]")
_HIDING = ("ASI06", "AML.T0068", "AML.T0080.000")

KINDS = {
    "hidden-text": Kind(
        title="Text in characters that nobody sees",
        advice="Read what it spells, and find out who wrote the memory: nobody writes such text by accident.",
        severity="high",
        taxonomy=_HIDING,
    ),
    "direction-override": Kind(
        title="Characters that make text appear in another order",
        advice="Read the memory in the order that is stored, and remove it unless it is about such characters.",
        severity="medium",
        taxonomy=_HIDING,
    ),
    "look-alike-letters": Kind(
        title="Words that mix alphabets whose letters look alike",
        advice="Compare the word with the one that it looks like: names and addresses are imitated in this way.",
        severity="medium",
        taxonomy=("ASI06", "AML.T0074", "AML.T0080.000"),
    ),
    "invisible-characters": Kind(
        title="Invisible characters",
        advice="Take them out where memories are written; most come with text that was copied from a page.",
        severity="low",
        taxonomy=_HIDING,
    ),
}


class _Hidden(NamedTuple):
    place: int
    character: str


class HiddenCharacters:
    """See the module."""

    name = "hidden-characters"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset()
    alone = True

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield at most one finding of each kind for each memory."""
        del memory
        for entry in entries:
            text = _FLAG.sub("", shown_text(entry))
            hidden = list(_hidden(text))
            if hidden and (spelt := _spelt(text, hidden)):
                yield self._finding(entry, "hidden-text", "it holds text that nobody sees", [("spells", spelt)])
            elif hidden:
                counts: dict[str, int] = {}
                for _, character in hidden:
                    counts[character] = counts.get(character, 0) + 1
                shown = [("character", f"{_named(one)}, {n} times") for one, n in list(counts.items())[:MAX_SHOWN]]
                yield self._finding(entry, "invisible-characters", f"{len(hidden)} characters show nothing", shown)
            if override := _OVERRIDES.search(text):
                excerpt = text[max(override.start() - 20, 0) : override.start() + 40]
                message = "part of it is shown in another order than it is stored"
                yield self._finding(entry, "direction-override", message, [("around", excerpt)])
            if words := _imitating(text):
                message = "words in it look like others that are spelt with other letters"
                shown = [("word", word[:MAX_SHOWN_CHARACTERS]) for word in words[:MAX_SHOWN]]
                yield self._finding(entry, "look-alike-letters", message, shown)

    def _finding(self, entry: Entry, kind: str, message: str, evidence: Sequence[tuple[str, str]]) -> Finding:
        return finding_about(
            entry, detector=self.name, kind=kind, severity=KINDS[kind].severity, message=message, evidence=evidence
        )


def _hidden(text: str) -> Iterator[_Hidden]:
    """Yield invisible characters that the writing of a text does not need; overrides are told apart from them."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").replace("\r", "").isprintable():
        return
    reordered: bool | None = None
    for place, character in enumerate(text):
        if character in "\n\r\t" or not is_invisible(character) or unicodedata.category(character) in _SEEN:
            continue
        before, after = text[place - 1 : place], text[place + 1 : place + 2]
        if _OVERRIDES.match(character) or (character == "\ufeff" and not place):
            continue
        if character in _JOINERS and _joins(before, after):
            continue
        if _SELECTORS.match(character) and _selected(before):
            continue
        if character in _DIRECTION:
            if reordered is None:
                reordered = any(unicodedata.bidirectional(one) in _LEFTWARD for one in text)
            if reordered:
                continue
        yield _Hidden(place, character)


def _joins(before: str, after: str) -> bool:
    """Tell whether a joiner has its use between two characters: signs, or letters of scripts that join them."""
    left = bool(before) and not before.isascii() and (not is_invisible(before) or bool(_SELECTORS.match(before)))
    return left and bool(after) and not after.isascii() and not is_invisible(after)


def _selected(before: str) -> bool:
    """Tell whether a variation selector has its use behind a character: a sign, or a letter beyond ASCII."""
    return bool(before) and not is_invisible(before) and not (before.isascii() and before.isalpha())


def _spelt(text: str, hidden: Sequence[_Hidden]) -> str:
    """Return what tag characters spell, or how long a run is that can spell bytes; empty where neither is there."""
    tags = "".join(_TAGS.findall(text))
    if tags:
        return "".join(chr(ord(tag) - 0xE0000) for tag in tags[:MAX_SHOWN_CHARACTERS])
    run: list[_Hidden] = []
    for one in (*hidden, _Hidden(-1, "")):
        if run and one.place == run[-1].place + 1:
            run.append(one)
            continue
        if len(run) >= MIN_RUN and len({item.character for item in run}) > 1:
            return f"{len(run)} characters in a row, the first {_named(run[0].character)}"
        run = [one]
    return ""


def _imitating(text: str) -> list[str]:
    """Return the different words that hold a Latin letter, and all of whose other letters look like Latin ones."""
    if text.isascii():
        return []
    return [
        word
        for word in dict.fromkeys(_WORD.findall(text))
        if not word.isascii()
        and sum(map(str.isalpha, word)) >= MIN_WORD
        and _LATIN.search(word)
        and not unicodedata.normalize("NFKC", word).isascii()
        and visible(word).isascii()
    ]


def _named(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".strip()
