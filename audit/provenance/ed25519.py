"""Ed25519 keys (RFC 8032) with names, and the public keys that are refused.

A public key MUST be refused when it is not 32 bytes, when its y is not reduced (a second encoding of the same point),
when it is not a point of the curve, and when its order divides 8: under such a key a signature can hold for messages
that nobody signed. libsodium, which judges it, also refuses a point of mixed order, the sum of a key and such a point:
nobody draws one as RFC 8032 says. Signing and verifying are libsodium's too, through PyNaCl: half OpenSSL's time, and
as strict on every case of Wycheproof. A signature MUST be refused when its S is not below the group's order, when its R
has low order, and when R is not the encoding of S·B - h·A (no cofactor): what libsodium accepts, Go and OpenSSL accept
too.

What is signed is always separated by its first bytes: leaves by `leaf.SIGNATURE_DOMAIN`, envelopes by DSSE's `DSSEv1 `,
notes by their origin line, which never starts with either, and what secrets are derived from by `SECRET_DOMAIN`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from nacl.bindings import (
    crypto_core_ed25519_is_valid_point,
    crypto_sign,
    crypto_sign_open,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import BadSignatureError

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import base64_strict

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "MAX_KEY_NAME", "SIGNATURE_BYTES", "PrivateKey", "PublicKey", "Signer", "check_key_name", "derived_secret",
    "first_forged",
]  # fmt: skip

KEY_BYTES = 32
SIGNATURE_BYTES = 64

MAX_KEY_NAME = 200
"""Characters; a key name is a schema-less URL, and it repeats on every signature line."""

SECRET_DOMAIN = b"memaudit secret v1\x00"
"""Begins what is signed to derive a secret; such a signature is never published."""

_NOTE_ED25519 = b"\x01"
"""C2SP signed-note's signature type of Ed25519."""
_VKEY = re.compile(r"(?P<name>[^+]+)\+(?P<id>[0-9a-f]{8})\+(?P<key>[A-Za-z0-9+/=]{44})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A named verification key.

    Raises:
        VerificationError: the name or the key is refused (see the module docstring).
    """

    name: str
    raw: bytes

    def __post_init__(self) -> None:
        check_key_name(self.name)
        if len(self.raw) != KEY_BYTES:
            raise VerificationError(f"key {self.name!r:.60}: {len(self.raw)} bytes, expected {KEY_BYTES}")
        if not _is_key(self.raw):
            raise VerificationError(
                f"key {self.name!r:.60}: not the encoding of a point of the prime-order group: signatures prove nothing"
            )

    @property
    def key_id(self) -> str:
        """SHA-256 (hex) of the public key: names the key in envelopes and Parquet; the note's own id is `note_id`."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def note_id(self) -> bytes:
        """Return the 4-byte key ID of C2SP signed notes."""
        return hashlib.sha256(self.name.encode() + b"\n" + _NOTE_ED25519 + self.raw).digest()[:4]

    @property
    def vkey(self) -> str:
        """The key as text: `name+id+base64(type, key)`, read by Go's `note.NewVerifier`."""
        return f"{self.name}+{self.note_id.hex()}+{base64_strict.encode(_NOTE_ED25519 + self.raw)}"

    @classmethod
    def from_vkey(cls, vkey: str) -> PublicKey:
        """Parse a vkey.

        Raises:
            VerificationError: not an Ed25519 vkey in its one form, or its id is not that of its key.
        """
        match = _VKEY.fullmatch(vkey) if len(vkey) <= MAX_KEY_NAME + 60 else None
        if match is None:
            raise VerificationError(f"vkey {vkey!r:.80}: expected name+id+key")
        material = base64_strict.decode(match["key"], f"vkey {vkey!r:.80}")
        if material[:1] != _NOTE_ED25519:
            raise VerificationError(f"vkey {vkey!r:.80}: signature type {material[:1].hex()}, expected 01 (Ed25519)")
        key = cls(match["name"], material[1:])
        if key.note_id.hex() != match["id"]:
            raise VerificationError(f"vkey {vkey!r:.80}: key ID is {match['id']}, expected {key.note_id.hex()}")
        return key

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Tell whether the signature holds."""
        if len(signature) != SIGNATURE_BYTES:  # the next call cannot see where the signature ends
            return False
        return first_forged((signature + message,), (self.raw,)) is None


class Signer(Protocol):
    """Signs by an Ed25519 key, wherever that lies: in memory, or in a token that never gives it away."""

    @property
    def name(self) -> str:
        """The key's name."""
        ...

    def public(self) -> PublicKey:
        """Return the verification key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign: 64 bytes, the same for the same message."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class PrivateKey:
    """A named signing key. Its `repr` and its errors never show the seed."""

    name: str
    seed: bytes

    def __repr__(self) -> str:
        return f"PrivateKey({self.name!r})"

    def __post_init__(self) -> None:
        check_key_name(self.name)
        if len(self.seed) != KEY_BYTES:
            raise VerificationError(f"private key {self.name!r:.60}: wrong length")

    @classmethod
    def generate(cls, name: str) -> PrivateKey:
        """Draw a new key from the operating system's generator."""
        return cls(name, secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_text(cls, text: str, where: str) -> PrivateKey:
        """Parse the form of `to_text`.

        Raises:
            VerificationError: names `where`, never the content.
        """
        parts = text.removesuffix("\n").split("+", 4)
        if len(parts) != 5 or parts[:2] != ["PRIVATE", "KEY"]:  # noqa: PLR2004 - PRIVATE, KEY, name, id, key
            raise VerificationError(f"{where}: not a private key file of MemAudit or Go's note package")
        try:
            material = base64_strict.decode(parts[4], where)
        except VerificationError:
            raise VerificationError(f"{where}: damaged private key") from None
        key = cls(parts[2], material[1:])
        if material[:1] != _NOTE_ED25519 or key.public().note_id.hex() != parts[3]:
            raise VerificationError(f"{where}: damaged private key (its ID is not that of its key)")
        return key

    def to_text(self) -> str:
        """Return one line, `PRIVATE+KEY+name+id+base64(type, seed)`: the form of Go's `note.NewSigner`."""
        material = base64_strict.encode(_NOTE_ED25519 + self.seed)
        return f"PRIVATE+KEY+{self.name}+{self.public().note_id.hex()}+{material}\n"

    def public(self) -> PublicKey:
        """Return the verification key."""
        return PublicKey(self.name, _expanded(self.seed)[KEY_BYTES:])

    def sign(self, message: bytes) -> bytes:
        """Sign: 64 bytes, the same for the same message."""
        return crypto_sign(message, _expanded(self.seed))[:SIGNATURE_BYTES]


def derived_secret(signer: Signer, purpose: bytes) -> bytes:
    """Return a secret of 32 bytes for one other purpose than signing, which nobody without the key can make.

    It is the SHA-256 of a signature: RFC 8032 gives a message one, and it cannot be guessed.

    Raises:
        UsageError: the signer gives a message another signature each time.
    """
    signature, again = (signer.sign(SECRET_DOMAIN + purpose) for _ in range(2))
    if signature != again:
        raise UsageError(f"key {signer.name} signs the same bytes differently each time, which Ed25519 never does")
    return hashlib.sha256(signature).digest()


def first_forged(signed: Iterable[bytes], raw_keys: Iterable[bytes]) -> int | None:
    """Find the first signature that does not hold.

    Args:
        signed: Each a signature of SIGNATURE_BYTES and, right after it, its message.
        raw_keys: For each, `PublicKey.raw` of its signer: 32 bytes that have been checked.

    Returns:
        Its position; None where all hold.
    """
    position = 0
    try:
        for position, (item, raw) in enumerate(zip(signed, raw_keys, strict=True)):  # noqa: B007 - the handler's
            crypto_sign_open(item, raw)
    except BadSignatureError:
        return position
    return None


def check_key_name(name: str) -> None:
    """Refuse a key name that a signature line could not carry (C2SP signed-note: no Unicode spaces, no plus).

    Raises:
        VerificationError: names the name.
    """
    if not name or len(name) > MAX_KEY_NAME or "+" in name or not name.isprintable() or any(c.isspace() for c in name):
        raise VerificationError(f"key name {name!r:.60}: 1 to {MAX_KEY_NAME} characters, no spaces, no plus")


@lru_cache(maxsize=64)
def _expanded(seed: bytes) -> bytes:
    """Seed and public key, as libsodium keeps a secret key."""
    return crypto_sign_seed_keypair(seed)[1]


@lru_cache(maxsize=4096)
def _is_key(raw: bytes) -> bool:
    """Tell whether KEY_BYTES encode a point that may be a key."""
    return bool(crypto_core_ed25519_is_valid_point(raw))
