"""What of a memory is read for hazards, and in which form. All text is an attacker's to choose.

Read is the harmful action: the response, and metadata values that are sentences. The request is not read: a safe answer
to the same request must stay welcome (measured: keys over request and response lock 3 of 10 safe twins, over the
response 0 of 10). Texts are cut into pieces of PIECE_BYTES, so that nothing hides behind a long preamble, and a short
response is read together with its metadata, so that an act split between the two is whole again. What overrides its
direction is read twice, as it is stored and as it is displayed (`audit.forget.bidi`); what bears marks on its letters,
or letters that imitate others, once more without them (`unmarked`), and what mixes Latin words with other signs, which
may be there to drown them, once more without those.

`visible` is the form in which text is embedded, hashed and shown to a model: Unicode NFKC; tag characters spelt out as
the letters they hide; other invisible, bidirectional and control characters dropped; letters of other scripts that look
like Latin ones replaced where they stand in a word with Latin letters; white space collapsed.

Not read: text encoded in base 64 or the like, images, text behind links.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from string import ascii_uppercase
from typing import TYPE_CHECKING

from audit.forget.bidi import displayed
from audit.invisible import is_invisible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from audit.entry import Entry

__all__ = ["PIECE_BYTES", "action_of", "fingerprint", "is_foreign", "pieces", "readings", "unmarked", "visible"]

PIECE_BYTES = 1_000
"""In UTF-8: about 250 tokens of English, what a MiniLM-sized embedder reads of a text before it stops.

Of rare letters, three tokens each, it is never more tokens than bytes, so that no reader of 1,024 tokens stops in it.
"""

MIN_METADATA_WORDS = 3
"""Shorter metadata values are names, tags and numbers, which say nothing of an act."""

MIN_METADATA_LETTERS = 8
"""Of scripts that put no spaces between words; fewer are names."""

MIN_FINGERPRINT_WORDS = 3
"""A text of one or two words ("Done.") is too common to be locked out for good."""

_TAGS = range(0xE0020, 0xE007F)
_TAG_BASE = 0xE0000

_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁһԛԝвнкмтАВЕКМНОРСТХУІЈЅԚԜοαινρτυκηΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhqwbhkmtABEKMHOPCTXYIJSQWoaivptukhABEZHIKMNOPTYX",
)
_IMITATIONS = str.maketrans(
    "ıȷɑɐəɛɜɡɢɩɪɫɬʟɱɴɲɳɔɵɹɾʀʁʂʃʇʈʉʊʋʌʍʎʏʐᴀʙᴄᴅᴇꜰʜᴊᴋᴍᴏᴘꜱᴛᴜᴠᴡᴢđðøłħŧɨɇɉɍɏƶƀɓɗƒɠƙŋƥƭⱳƴȥɖĐØŁĦŦ",
    "ijaaeeeggiilllmnnnoorrrrssttuuvvwyyzabcdefhjkmopstuvwzddolhtiejryzbbdfgknptwyzdDOLHT",
)
"""Letters that stand for Latin ones, in some languages for themselves."""

_DARK_LETTERS = (0x1F150, 0x1F170)
"""First of two alphabets on dark ground, which have no compatibility form as others have."""

_WORD = re.compile(r"\w+")
_SPELT = re.compile(r"[\w\u0300-\u036f]+")  # a mark that composes with no letter splits no word
_LATIN = re.compile(r"[A-Za-z]")
_LATIN_WORD = re.compile(r"[A-Za-z]{2,}")
_LAST_LATIN = 0x24F
_PUNCTUATION = frozenset(map(chr, range(0x2010, 0x2028)))
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|\n+")

_ENGLISH_WORDS = """
the a an of to and in on for with as is are be by at from it this that or not if then when use only after before always
never do into all any no without once each than so you your its
"""
_OTHER_WORDS = """
der die das und ist nicht mit den dem ein eine für auf wenn dann ohne als auch nach bei oder wird werden immer alle
le la les des du et est une un que qui dans pour avec sans sur pas au aux ce cette ne toujours vous ou par
el los las y es una que en con sin por para del al se lo siempre como cuando todo todos
il gli di e che non per una con senza sono della nel sempre quando
o os as um uma não com sem para do da em ao sempre quando
de het een niet met voor zonder als dan ook altijd van naar wordt en
"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_OTHER_LANGUAGES = frozenset(_OTHER_WORDS.split()) - _ENGLISH
FOREIGN_SCRIPT_SHARE = 0.2


def visible(text: str) -> str:
    """Return text as a careful reader sees it (see the module's docstring)."""
    if text.isascii():
        return " ".join("".join(c if c.isprintable() or c.isspace() else " " for c in text).split())
    shown: list[str] = []
    for character in unicodedata.normalize("NFKC", text):
        code = ord(character)
        if code in _TAGS:
            shown.append(chr(code - _TAG_BASE))
        elif character.isspace():
            shown.append(" ")
        elif not is_invisible(character):
            shown.append(character)
    plain = unicodedata.normalize("NFKC", "".join(shown))  # dropping a joiner can bring a base and its mark together
    while True:
        # A letter that became Latin takes its mark in, and so can join what was two words to Unicode.
        latin = unicodedata.normalize("NFKC", _SPELT.sub(_in_latin, plain))
        if latin == plain:
            return " ".join(plain.split())
        plain = latin


def unmarked(text: str) -> str:
    """Return visible text without the marks on its Latin letters, and with plain letters for what imitates them.

    An agent reads "śḱíṕ ťĥê ťêśťś" as it is meant, and models that were made for plain text do not.
    """
    if text.isascii():
        return text
    plain: list[str] = []
    for character in unicodedata.normalize("NFKD", text.translate(_IMITATIONS)):
        first = next((first for first in _DARK_LETTERS if first <= ord(character) < first + len(ascii_uppercase)), None)
        if first is not None:
            plain.append(ascii_uppercase[ord(character) - first])
        elif not (unicodedata.category(character) in {"Mn", "Me"} and plain and plain[-1].isascii()):
            plain.append(character)
    return visible(unicodedata.normalize("NFC", "".join(plain)))


def pieces(text: str) -> tuple[str, ...]:
    """Cut visible text into pieces of at most PIECE_BYTES, at sentence ends where there are some."""
    found: list[str] = []
    current = ""
    for sentence in _SENTENCE_END.split(text):
        for part in _parts(sentence):
            if current and _bytes(current) + 1 + _bytes(part) > PIECE_BYTES:
                found.append(current)
                current = part
            else:
                current = f"{current} {part}" if current else part
    if current:
        found.append(current)
    return tuple(found)


def readings(entry: Entry) -> tuple[str, ...]:
    """Return the visible texts of an entry that could ask for an act, each at most PIECE_BYTES long, none twice.

    The response's come first; with metadata, a response that is one piece is read with it as well.
    """
    found: list[str] = []
    forms = tuple(_forms(entry))
    latin = ((_in_latin_alone(response), _in_latin_alone(metadata)) for response, metadata in forms)
    for response, metadata in dict.fromkeys((*forms, *latin)):
        found += [*pieces(response), *pieces(metadata)]
        if response and metadata and len(pieces(both := f"{response} {metadata}")) == 1:
            found.append(both)
    return tuple(dict.fromkeys(found))


def action_of(entry: Entry) -> tuple[str, ...]:
    """Return the readings that stand for what an entry does: its response's, or its metadata's where it has none.

    Metadata is not part of it otherwise: what all entries of a store have in common must not become a lock. Nor are a
    mixed text's Latin words by themselves: a few names in a text of another language are no act.
    """
    found: list[str] = []
    for response, metadata in _forms(entry):
        found += pieces(response if _WORD.search(response) else metadata)
    return tuple(dict.fromkeys(found))


def fingerprint(text: str, salt: str) -> bytes | None:
    """Return a digest that equals another's where both texts have the same words, whatever their case and marks.

    Args:
        text: Any text, visible or not.
        salt: The store's id, so that digests of two stores cannot be compared.

    Returns:
        16 bytes; None for a text too short to be locked out by its words.
    """
    words = _WORD.findall(visible(text).casefold())
    if len(words) < MIN_FINGERPRINT_WORDS:
        return None
    data = f"memaudit fingerprint v1\x00{salt}\x00{' '.join(words)}"
    return hashlib.sha256(data.encode(errors="replace")).digest()[:16]


def is_foreign(text: str) -> bool:
    """Tell whether visible text is probably not English, by script and by function words.

    Known are the scripts that are not Latin, German, French, Spanish, Italian, Portuguese and Dutch by their words, and
    languages whose words have letters beyond ASCII. An embedder for English places other languages anywhere, so
    similarity says nothing of such a text.
    """
    letters = [character for character in text if character.isalpha()]
    other_script = sum(ord(character) > _LAST_LATIN for character in letters)
    if letters and other_script / len(letters) > FOREIGN_SCRIPT_SHARE:
        return True
    words = [word.casefold() for word in _WORD.findall(text)]
    english = sum(word in _ENGLISH for word in words)
    other = sum(word in _OTHER_LANGUAGES or _has_other_letters(word) for word in words)
    return other >= 2 and other > english  # noqa: PLR2004 - one such word may be a name


def _has_other_letters(word: str) -> bool:
    return not word.isascii() and any(character.isalpha() and not character.isascii() for character in word)


def _parts(sentence: str) -> Iterator[str]:
    """Cut a sentence that is too long for a piece."""
    if _bytes(sentence) <= PIECE_BYTES:
        yield sentence
        return
    start = size = 0
    for place, character in enumerate(sentence):
        size += _bytes(character)
        if size > PIECE_BYTES:
            yield sentence[start:place]
            start, size = place, _bytes(character)
    yield sentence[start:]


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def _forms(entry: Entry) -> Iterator[tuple[str, str]]:
    """Return the visible response and metadata of an entry: as stored, as displayed, and as either without marks."""
    response, notes = entry.response, tuple(entry.metadata.values())
    turned, turned_notes = displayed(response), tuple(map(displayed, notes))
    seen = [(visible(response), _notes(notes))]
    if (turned, turned_notes) != (response, notes):
        seen.append((visible(turned), _notes(turned_notes)))
    plain = [(unmarked(shown), unmarked(told)) for shown, told in seen]
    yield from dict.fromkeys((*seen, *plain))


def _notes(values: Iterable[str]) -> str:
    shown = (visible(value) for value in values)
    return " ".join(value for value in shown if _is_sentence(value))


def _is_sentence(value: str) -> bool:
    if len(_WORD.findall(value)) >= MIN_METADATA_WORDS:
        return True
    return sum(c.isalpha() and unicodedata.east_asian_width(c) == "W" for c in value) >= MIN_METADATA_LETTERS


def _in_latin_alone(text: str) -> str:
    """Return the Latin words of a text that mixes them with other signs, which may be there to drown them."""
    if text.isascii():
        return text
    latin = visible("".join(c if ord(c) <= _LAST_LATIN or c in _PUNCTUATION else " " for c in text))
    return latin if len(_LATIN_WORD.findall(latin)) >= MIN_FINGERPRINT_WORDS else text


def _in_latin(match: re.Match[str]) -> str:
    word = match[0]
    return word.translate(_LOOKALIKES) if not word.isascii() and _LATIN.search(word) else word
