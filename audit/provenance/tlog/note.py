"""C2SP signed notes (c2sp.org/signed-note): text signed by one or more named Ed25519 keys.

    This is an example message.

    — example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=

Read and written like Go's `golang.org/x/mod/sumdb/note`. A verifier MUST reject: more than MAX_NOTE_BYTES or
MAX_SIGNATURES; bytes that are not UTF-8; control characters other than newline; a text that does not end in a newline;
a signature line of any other form; a signature by a known key that does not verify; fewer than the threshold of
distinct known keys. Signatures of unknown keys are ignored, as the specification demands (witnesses add theirs).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import VerificationError
from memory_audit.provenance import base64_strict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memory_audit.provenance.ed25519 import PublicKey, Signer

__all__ = ["MAX_NOTE_BYTES", "Note", "open_note", "parse_note", "sign_note"]

MAX_NOTE_BYTES = 64 * 1024
"""A checkpoint with 32 Ed25519 signatures takes 10 kB; the rest is room for witnesses."""

MAX_SIGNATURES = 32
"""The specification asks for 16 at least."""

_SIGNATURE_LINE = re.compile(r"— (?P<name>[^\s+]+) (?P<signature>[A-Za-z0-9+/=]+)")
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSignature:
    """One signature line."""

    name: str
    note_id: bytes
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A parsed note: nothing in it is trusted yet."""

    text: str
    """Ends in a newline."""

    signatures: tuple[NoteSignature, ...]


def sign_note(text: str, keys: Iterable[Signer]) -> bytes:
    """Sign `text`, which ends in a newline, with each key.

    Raises:
        ValueError: text that no note can carry, or no key.
    """
    lines = [f"— {key.name} {base64_strict.encode(key.public().note_id + key.sign(text.encode()))}\n" for key in keys]
    if not text.endswith("\n") or _CONTROL.search(text) or not lines:
        raise ValueError("a note needs a key, and text that ends in a newline and has no other control characters")
    return (text + "\n" + "".join(lines)).encode()


def parse_note(data: bytes, where: str) -> Note:
    """Split a note into text and signatures, verifying nothing.

    Raises:
        VerificationError: names `where` and the rule broken.
    """
    if len(data) > MAX_NOTE_BYTES:
        raise VerificationError(f"{where}: a note of {len(data)} bytes, at most {MAX_NOTE_BYTES} are allowed")
    try:
        note = data.decode()
    except UnicodeDecodeError as error:
        raise VerificationError(f"{where}: note is not UTF-8 at byte {error.start}") from None
    if _CONTROL.search(note):
        raise VerificationError(f"{where}: note has control characters")
    text, separator, block = note.rpartition("\n\n")
    if not separator or not block.endswith("\n"):
        raise VerificationError(f"{where}: not a signed note (no signatures after an empty line)")
    lines = block[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise VerificationError(f"{where}: {len(lines)} signatures, at most {MAX_SIGNATURES} are allowed")
    return Note(text=text + "\n", signatures=tuple(_parse_signature(line, where) for line in lines))


def open_note(data: bytes, keys: Sequence[PublicKey], *, threshold: int = 1, where: str) -> Note:
    """Parse a note and verify its signatures by the known `keys`.

    Returns:
        The note with the verified signatures only, each key once.

    Raises:
        VerificationError: see the module docstring.
    """
    note = parse_note(data, where)
    known = {(key.name, key.note_id): key for key in keys}
    message = note.text.encode()
    verified: dict[bytes, NoteSignature] = {}
    for line in note.signatures:
        key = known.get((line.name, line.note_id))
        if key is None:
            continue
        if not key.verifies(line.signature, message):
            raise VerificationError(f"{where}: signature of {line.name} ({line.note_id.hex()}) does not verify")
        verified.setdefault(key.raw, line)  # by key, not by name: a key listed twice counts once
    if len(verified) < threshold:
        raise VerificationError(f"{where}: signed by {len(verified)} known keys, expected {threshold}")
    return Note(text=note.text, signatures=tuple(verified.values()))


def _parse_signature(line: str, where: str) -> NoteSignature:
    match = _SIGNATURE_LINE.fullmatch(line)
    if match is None:
        raise VerificationError(f"{where}: malformed signature line {line!r:.60}")
    data = base64_strict.decode(match["signature"], where)
    if len(data) <= 4:  # noqa: PLR2004 - a 4-byte key ID, then the signature
        raise VerificationError(f"{where}: signature line of {match['name']!r:.60} holds {len(data)} bytes")
    return NoteSignature(name=match["name"], note_id=data[:4], signature=data[4:])
