"""What of a memory is read for hazards, and in which form. All text is an attacker's to choose.

Read is the harmful action: the response, and what metadata says. The request is not read: a safe answer to the same
request must stay welcome (measured: keys over request and response lock 3 of 10 safe twins, over the response 0 of 10).
Texts are cut into pieces (`memory_audit.guard.text.chunks`), so that nothing hides behind a long preamble, and a short
response is read together with its metadata, so that a behaviour split between the two is whole again. What overrides
its direction is read twice, as it is stored and as it is displayed (`memory_audit.guard.text.bidi`); what bears marks
on its letters, or letters that imitate others, once more without them (`unmarked`), and what mixes Latin words with
other signs, which may be there to drown them, once more without those.

`visible` is the form in which text is embedded, hashed and shown to a model: Unicode NFKC; tag characters spelt out as
the letters they hide; other invisible, bidirectional and control characters dropped; letters of other scripts that look
like Latin ones replaced where they stand in a word with Latin letters; white space collapsed. Of a run of combining
marks the first are kept (`memory_audit.text.nfc.few_marks`) before every normalisation: dropping what parts runs makes
one of many.

Of metadata is read, in its order:

1. values of MIN_METADATA_WORDS words or more, as they are, but names of MIN_NAME_WORDS words or more
   ("skip_the_old_check", "copyOldResultsOver") with spaces for what holds them together: `_`, `-`, `/` or a capital;
2. keys of as many words with spaces between them, and keys that are such names where they hold two JOINING_WORDS: other
   long names are what keys are;
3. once more with all that is too short for 1 and 2 (values, and keys of two words), where that looks like language: it
   has MIN_JOINED_SIGNS signs, which are values of two words and different JOINING_WORDS, and with 1 and 2 it has
   MIN_JOINED_WORDS words of letters. {"a": "Skip the", "b": "old check"} does, {"for": "Ana Silva", "by": "web_chat"}
   does not.

Scripts without spaces have letters for words: MIN_METADATA_LETTERS, and twice as many for 3, as of several names.

Not read: text encoded in base 64 or the like, images, text behind links; of metadata a sentence of one word for each
value that has no JOINING_WORDS.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from itertools import groupby
from string import ascii_uppercase
from typing import TYPE_CHECKING, Literal, NamedTuple

from memory_audit.guard.text.bidi import displayed
from memory_audit.guard.text.chunks import pieces
from memory_audit.text.invisible import is_invisible
from memory_audit.text.nfc import few_marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memory_audit.entry import Entry

__all__ = [
    "action_of", "fingerprint", "is_foreign", "noted_in", "text_forms", "unmarked", "visible", "wholes",
]  # fmt: skip

MIN_METADATA_WORDS = 3
"""Shorter metadata values are names, tags and numbers, which say nothing of a behaviour."""

MIN_METADATA_LETTERS = 8
"""Of scripts that put no spaces between words; fewer are names."""

MIN_NAME_WORDS = 4
"""Of a name that is a sentence in disguise; those of three are common ("user_login_failed")."""

MIN_JOINED_WORDS = 4
"""Of what is too short by itself."""

MIN_JOINED_SIGNS = 2
"""That it is language: one may be a person's name."""

_JOINING = "the and for with from this that then when into without than your its are not"
JOINING_WORDS = frozenset(_JOINING.split())
"""English words that are no value by themselves, nor the code of a language or a state, as shorter ones are."""

MIN_FINGERPRINT_WORDS = 3
"""A text of one or two words ("Done.") is too common to be locked out for good; of scripts that put no spaces between
words, one of less than MIN_METADATA_LETTERS."""

_CONTROLS = dict.fromkeys((*range(32), 127), " ")
"""Of ASCII."""

_TAGS = range(0xE0020, 0xE007F)
_TAG_BASE = 0xE0000

_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁһԛԝвнкмтАВЕКМНОРСТХУІЈЅԚԜοαινρτυκηΑΒΕΖΗΙΚΜΝΟΡΤΥΧօսոռհցգզյՕՍՏԼ",
    "aeopcyxijsdhqwbhkmtABEKMHOPCTXYIJSQWoaivptukhABEZHIKMNOPTYXounnhgqqjOUSL",
)
_IMITATIONS = str.maketrans(
    "ıȷɑɐəɛɜɡɢɩɪɫɬʟɱɴɲɳɔɵɹɾʀʁʂʃʇʈʉʊʋʌʍʎʏʐᴀʙᴄᴅᴇꜰʜᴊᴋᴍᴏᴘꜱᴛᴜᴠᴡᴢđðøłħŧɨɇɉɍɏƶƀɓɗƒɠƙŋƥƭⱳƴȥɖĐØŁĦŦ",
    "ijaaeeeggiilllmnnnoorrrrssttuuvvwyyzabcdefhjkmopstuvwzddolhtiejryzbbdfgknptwyzdDOLHT",
)
"""Letters that stand for Latin ones, in some languages for themselves."""

_DARK_LETTERS = (0x1F150, 0x1F170)
"""First of two alphabets on dark ground, which have no compatibility form as others have."""

_WORD = re.compile(r"\w+")
_LETTERS = re.compile(r"\b[^\W\d_]+\b")
_NAME = re.compile(r"[\w/-]+")
_HELD_TOGETHER = re.compile(r"[_/-]+")
_CAMEL = re.compile(r"\b[A-Za-z][a-z]+(?:[A-Z][a-z]+)+\b")  # random letters and digits, as of an id, hardly ever are
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SPELT = re.compile(r"[\w\u0300-\u036f]+")  # a mark that composes with no letter splits no word
_LATIN = re.compile(r"[A-Za-z]")
_LATIN_WORD = re.compile(r"[A-Za-z]{2,}")
_LAST_LATIN = 0x24F
_PUNCTUATION = frozenset(map(chr, range(0x2010, 0x2028)))

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
        return " ".join((text if text.isprintable() else text.translate(_CONTROLS)).split())
    shown: list[str] = []
    for character in _normal("NFKC", text):
        code = ord(character)
        if code in _TAGS:
            shown.append(chr(code - _TAG_BASE))
        elif character.isspace():
            shown.append(" ")
        elif not is_invisible(character):
            shown.append(character)
    plain = _normal("NFKC", "".join(shown))  # dropping a joiner can bring a base and its mark together
    while True:
        # A letter that became Latin takes its mark in, and so can join what was two words to Unicode.
        latin = _normal("NFKC", _SPELT.sub(_in_latin, plain))
        if latin == plain:
            return " ".join(plain.split())
        plain = latin


def unmarked(text: str) -> str:
    """Return visible text without the marks on its Latin letters, and with plain letters for what imitates them.

    An agent reads "śḱíṕ ťĥê ťêśťś" as it is meant, and models that were made for plain text do not. In a word with a
    Latin letter a lookalike with a mark ("thё") is one of its letters too.
    """
    if text.isascii():
        return text
    plain: list[str] = []
    for word in _marked_words(map(_lit, _normal("NFKD", text.translate(_IMITATIONS)))):
        latin = word.translate(_LOOKALIKES) if _LATIN.search(word) else word
        for character in latin:
            if not (_is_mark(character) and plain and plain[-1].isascii()):
                plain.append(character)
    return visible(_normal("NFC", "".join(plain)))


def text_forms(entry: Entry) -> tuple[str, ...]:
    """Return the visible texts of an entry that could ask for a behaviour, each at most PIECE_BYTES long, none twice.

    The response's come first; with metadata, a response that is one piece is read with it as well.
    """
    found: list[str] = []
    forms = tuple(_forms(entry))
    latin = ((_in_latin_alone(response), _in_latin_alone(metadata)) for response, metadata in forms)
    for response, metadata in dict.fromkeys((*forms, *latin)):
        found += [*pieces(response), *_noted(response, metadata)]
    return tuple(dict.fromkeys(found))


def noted_in(entry: Entry) -> tuple[str, ...]:
    """Return the forms in which an entry's metadata has a part, without those of a mixed text's Latin words."""
    return tuple(dict.fromkeys(text for form in _forms(entry) for text in _noted(*form)))


def wholes(entry: Entry) -> tuple[str, ...]:
    """Return the texts, however long, whose words are those of the entry: its response, and that with its metadata.

    Not of metadata alone, where the response has no words: all entries of a store may have it in common.
    """
    response, metadata = visible(entry.response), _notes(tuple(entry.metadata.items()))[-1]
    return (response, f"{response} {metadata}") if metadata and _WORD.search(response) else (response,)


def action_of(entry: Entry) -> tuple[str, ...]:
    """Return the forms that stand for what an entry does: its response's, or its metadata's where it has none.

    Metadata is not part of it otherwise: what all entries of a store have in common must not become a lock. Nor are a
    mixed text's Latin words by themselves: a few names in a text of another language are no behaviour.
    """
    found: list[str] = []
    for response, metadata in _forms(entry):
        found += pieces(response if _WORD.search(response) else metadata)
    return tuple(dict.fromkeys(found))


def fingerprint(text: str, salt: str) -> bytes | None:
    """Return a digest that equals another's where both texts have the same words, whatever their case and marks.

    Signs are no words: "a = b + 4" and "a = b - 4" are the same.

    Args:
        text: Any text, visible or not.
        salt: The store's id, so that digests of two stores cannot be compared.

    Returns:
        16 bytes; None for a text too short to be locked out by its words.
    """
    shown = visible(text)
    words = _WORD.findall(shown.casefold())
    if len(words) < MIN_FINGERPRINT_WORDS and _wide(shown) < MIN_METADATA_LETTERS:
        return None
    data = f"memaudit fingerprint v1\x00{salt}\x00{' '.join(words)}"
    return hashlib.sha256(data.encode(errors="replace")).digest()[:16]


def is_foreign(text: str) -> bool:
    """Tell whether visible text is probably not English, by script and by function words.

    Known are the scripts that are not Latin, German, French, Spanish, Italian, Portuguese and Dutch by their words, and
    languages whose words have letters beyond ASCII. An embedder for English places other languages anywhere, so
    similarity says nothing of such a text.
    """
    if text.isascii():
        words = _WORD.findall(text.lower())
        other = sum(map(_OTHER_LANGUAGES.__contains__, words))
    else:
        letters = [character for character in text if character.isalpha()]
        other_script = sum(ord(character) > _LAST_LATIN for character in letters)
        if letters and other_script / len(letters) > FOREIGN_SCRIPT_SHARE:
            return True
        words = [word.casefold() for word in _WORD.findall(text)]
        other = sum(word in _OTHER_LANGUAGES or _has_other_letters(word) for word in words)
    return other >= 2 and other > sum(map(_ENGLISH.__contains__, words))  # noqa: PLR2004 - one such word may be a name


def _normal(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Normalise, and leave no longer run of marks than that of a text that was normalised before."""
    return few_marks(unicodedata.normalize(form, few_marks(text)))


def _has_other_letters(word: str) -> bool:
    return not word.isascii() and any(character.isalpha() and not character.isascii() for character in word)


def _forms(entry: Entry) -> Iterator[tuple[str, str]]:
    """Return the visible response and metadata of an entry: as stored, as displayed, and as either without marks."""
    response, items = entry.response, tuple(entry.metadata.items())
    turned, turned_items = displayed(response), tuple((displayed(key), displayed(value)) for key, value in items)
    seen = [(visible(response), told) for told in _notes(items)]
    if (turned, turned_items) != (response, items):
        seen += [(visible(turned), told) for told in _notes(turned_items)]
    plain = [(unmarked(shown), unmarked(told)) for shown, told in seen]
    yield from dict.fromkeys((*seen, *plain))


def _noted(response: str, metadata: str) -> tuple[str, ...]:
    """Return the pieces of metadata, and it together with a response where both are one piece."""
    both = f"{response} {metadata}"
    together = (both,) if response and metadata and len(pieces(both)) == 1 else ()
    return *pieces(metadata), *together


class _Note(NamedTuple):
    """What a key or a value of metadata says."""

    text: str
    alone: bool
    """Long enough to be read by itself."""

    sign: bool = False
    """A value of two words."""


def _notes(items: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return what metadata says: what is read by itself; and all of it, where the rest looks like language too."""
    notes = [note for key, value in items for note in (_of_key(visible(key)), _of_value(visible(value)))]
    alone = " ".join(note.text for note in notes if note.alone)
    if not _has_more(notes):
        return (alone,)
    return alone, " ".join(note.text for note in notes if note.text)


def _of_value(value: str) -> _Note:
    spelt = _spelt_out(value)
    if len(_WORD.findall(spelt)) >= MIN_METADATA_WORDS or _wide(spelt) >= MIN_METADATA_LETTERS:
        return _Note(spelt, alone=True)
    return _Note(_apart(value), alone=False, sign=" " in value and len(_LETTERS.findall(value)) > 1)


def _of_key(key: str) -> _Note:
    spelt = _spelt_out(key)
    spaced = sum(any(map(str.isalpha, part)) for part in key.split())
    if spaced >= MIN_METADATA_WORDS or _wide(key) >= MIN_METADATA_LETTERS:
        return _Note(spelt, alone=True)
    if spelt != key and len(_joining([spelt])) >= MIN_JOINED_SIGNS:
        return _Note(spelt, alone=True)
    return _Note(key if spaced > 1 else "", alone=False)


def _has_more(notes: Sequence[_Note]) -> bool:
    """Tell whether what is too short to be read by itself looks like language, or a part of it."""
    short = [note.text for note in notes if not note.alone]
    signs = sum(note.sign for note in notes) + len(_joining(short))
    if signs >= MIN_JOINED_SIGNS and sum(len(_LETTERS.findall(note.text)) for note in notes) >= MIN_JOINED_WORDS:
        return True
    return sum(map(_wide, short)) >= 2 * MIN_METADATA_LETTERS


def _joining(texts: Iterable[str]) -> frozenset[str]:
    return JOINING_WORDS.intersection(word.casefold() for text in texts for word in _LETTERS.findall(text))


def _spelt_out(text: str) -> str:
    """Return text with spaces in its long names."""
    return " ".join(map(_spelt_name, text.split()))


def _spelt_name(part: str) -> str:
    if not _NAME.fullmatch(part):
        return part
    spelt = _apart(part)
    return spelt if len(_LETTERS.findall(spelt)) >= MIN_NAME_WORDS else part


def _apart(text: str) -> str:
    """Return text with spaces in all its names."""
    parted = _CAMEL.sub(lambda name: _CAPITAL.sub(" ", name[0]), _HELD_TOGETHER.sub(" ", text))
    return " ".join(parted.split())


def _wide(text: str) -> int:
    """Count letters of scripts that put no spaces between words."""
    return 0 if text.isascii() else sum(c.isalpha() and unicodedata.east_asian_width(c) == "W" for c in text)


def _in_latin_alone(text: str) -> str:
    """Return the Latin words of a text that mixes them with other signs, which may be there to drown them."""
    if text.isascii():
        return text
    latin = visible("".join(c if ord(c) <= _LAST_LATIN or c in _PUNCTUATION else " " for c in text))
    return latin if len(_LATIN_WORD.findall(latin)) >= MIN_FINGERPRINT_WORDS else text


def _lit(character: str) -> str:
    """Return the letter that one on dark ground stands for, or what is no such letter."""
    first = next((first for first in _DARK_LETTERS if first <= ord(character) < first + len(ascii_uppercase)), None)
    return character if first is None else ascii_uppercase[ord(character) - first]


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in {"Mn", "Me"}


def _marked_words(characters: Iterable[str]) -> Iterator[str]:
    """Part characters into words, which no mark splits, and what stands between them."""
    for _, run in groupby(characters, lambda one: one.isalnum() or one == "_" or _is_mark(one)):
        yield "".join(run)


def _in_latin(match: re.Match[str]) -> str:
    word = match[0]
    return word.translate(_LOOKALIKES) if not word.isascii() and _LATIN.search(word) else word
