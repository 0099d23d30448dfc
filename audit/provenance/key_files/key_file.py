"""A private key's file: whose it is, and where its private part lies.

    memaudit/log+3f5a29c1+AbQ…=                    the public key, as a vkey: who it is can be told without a secret
    -----BEGIN ENCRYPTED PRIVATE KEY-----          PKCS#8 (`pem`), plain or under a passphrase
    …

In the place of the PEM block may stand the PKCS#11 URI of a key in a token (`token`). `openssl pkey` passes over the
first line. A PEM without it, as OpenSSL writes one, is that of the policy's key which its file is named after. Files of
earlier versions are one line, `PRIVATE+KEY+…`, in the form of Go's note package. A reader MUST refuse a private part
that is not that of the first line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import durable
from memory_audit.provenance.ed25519 import PrivateKey, PublicKey
from memory_audit.provenance.key_files.pem import decode_pem, decode_public_pem, encode_pem, is_encrypted
from memory_audit.provenance.key_files.token import URI_SCHEME, TokenKey, TokenSigner

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.provenance.ed25519 import Signer

__all__ = [
    "MAX_KEY_FILE_BYTES", "OPEN_TO_OTHERS", "LockedKey", "Secrets", "check_private", "encode_key", "no_secrets",
    "read_key", "read_offered", "unlocked",
]  # fmt: skip

MAX_KEY_FILE_BYTES = 8_192

OPEN_TO_OTHERS = stat.S_IWGRP | stat.S_IRWXO
"""What the mode of a secret's file may not have: its group may read (mounted secrets often are so) and nobody else, and
only the owner writes."""

Secrets: TypeAlias = Callable[[str], bytes]
"""Gives the passphrase or the PIN of a key, by the key's name; raises `UsageError` where there is none."""

_OF_GO = "PRIVATE+KEY+"


@dataclass(slots=True, kw_only=True, eq=False)
class LockedKey:
    """A key whose private part is opened when it is first needed."""

    verifier: PublicKey
    kept: Literal["passphrase", "token"]
    opener: Callable[[], Signer] = field(repr=False)
    opened: Signer | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The key's name."""
        return self.verifier.name

    def public(self) -> PublicKey:
        """Return the verification key, as the file says it."""
        return self.verifier

    def unlocked(self) -> Signer:
        """Open it.

        Raises:
            UsageError: the passphrase or PIN is missing or wrong, or there is no such token.
            VerificationError: damaged, or not the key that the file says.
        """
        if self.opened is None:
            self.opened = self.opener()
        return self.opened

    def sign(self, message: bytes) -> bytes:
        """Sign: 64 bytes. Raises like `unlocked`."""
        return self.unlocked().sign(message)


def no_secrets(name: str) -> bytes:
    """Have neither passphrase nor PIN.

    Raises:
        UsageError: always.
    """
    raise UsageError(f"private key {name:.80} needs a passphrase, or the PIN of its token, and none was given")


def unlocked(key: Signer) -> Signer:
    """Open a key where it is locked. Raises like `LockedKey.unlocked`."""
    return key.unlocked() if isinstance(key, LockedKey) else key


def encode_key(key: Signer, passphrase: Callable[[str], bytes | None]) -> bytes:
    """Return a key's file: a seed as PEM, encrypted where its name has a passphrase; of a token its URI."""
    key = unlocked(key)
    if isinstance(key, TokenSigner):
        private = f"{key.key.uri()}\n"
    else:
        assert isinstance(key, PrivateKey)  # noqa: S101 - there is no third
        private = encode_pem(key.seed, passphrase(key.name))
    return f"{key.public().vkey}\n{private}".encode()


def check_private(path: Path, what: str) -> None:
    """Refuse a secret's file that others may read or write.

    Raises:
        UsageError: they may.
    """
    if path.stat().st_mode & OPEN_TO_OTHERS:
        raise UsageError(f"{what} is open to others: chmod 600 it")


def read_key(
    path: Path, secrets: Secrets = no_secrets, named: Callable[[str], PublicKey | None] = lambda _: None
) -> Signer:
    """Read a private key's file; what is locked is opened when it first signs.

    Args:
        path: The file.
        secrets: Gives passphrase or PIN, by the key's name.
        named: Gives the key that a file of this name is of, where the file itself does not say it.

    Raises:
        UsageError: a PEM that is no single Ed25519 key in PKCS#8, or does not say whose it is; a bad PKCS#11 URI; a
            file that names a module and is another user's.
        VerificationError: it is damaged.
    """
    where = f"private key {path.name}"
    text = durable.read_bounded(path, MAX_KEY_FILE_BYTES, where).decode("utf-8", "replace")
    if text.startswith(_OF_GO):
        return PrivateKey.from_text(text, where)
    head, _, rest = text.partition("\n")
    if head.startswith("-----BEGIN "):
        public, rest = named(path.name), text
        if public is None:
            raise UsageError(f"{where}: does not say whose it is: add it by `memaudit keys add ROLE --from FILE`")
    else:
        public = _vkey(head, where)
    if rest.startswith(URI_SCHEME):
        if path.stat().st_uid not in {0, os.geteuid()}:
            raise UsageError(f"{where}: names a module to load, and is another user's file")
        key = TokenKey.parse(rest.strip(), where)
        return LockedKey(
            verifier=public,
            kept="token",
            opener=lambda: TokenSigner.open(key, public, lambda: secrets(public.name), where),
        )
    if not is_encrypted(rest, where):
        return _checked(decode_pem(rest, None, where), public, where)
    return LockedKey(
        verifier=public,
        kept="passphrase",
        opener=lambda: _checked(decode_pem(rest, secrets(public.name), where), public, where),
    )


def read_offered(path: Path, name: str, secrets: Secrets) -> PrivateKey | PublicKey:
    """Read a key that a user brings: a PEM, private or public, a vkey, or a file of another key folder.

    Args:
        path: The file.
        name: What the key is to be called, where the file does not say it.
        secrets: Gives the passphrase, by that name.

    Raises:
        UsageError: none of these, no Ed25519 key, a private key that others may read, or a wrong passphrase.
        VerificationError: damaged, or a name that no key can have.
    """
    where = f"key file {path.name}"
    text = durable.read_bounded(path, MAX_KEY_FILE_BYTES, where).decode("utf-8", "replace")
    if text.startswith("-----BEGIN PUBLIC KEY-----"):
        return PublicKey(name, decode_public_pem(text, where))
    if not text.partition("\n")[2].strip() and not text.startswith(_OF_GO):
        return _vkey(text.rstrip(), where)
    check_private(path, where)
    if text.startswith("-----BEGIN "):
        return PrivateKey(name, decode_pem(text, secrets(name) if is_encrypted(text, where) else None, where))
    found = read_key(path, secrets)
    if isinstance(found, LockedKey) and found.kept == "token":
        raise UsageError(f"{where}: names a key in a token: give its URI (--token)")
    key = unlocked(found)
    assert isinstance(key, PrivateKey)  # noqa: S101 - as all but those in tokens are
    return key


def _vkey(line: str, where: str) -> PublicKey:
    try:
        return PublicKey.from_vkey(line.rstrip("\r"))
    except VerificationError:
        raise VerificationError(f"{where}: not a private key file of MemAudit, nor a PEM or a PKCS#11 URI") from None


def _checked(seed: bytes, public: PublicKey, where: str) -> PrivateKey:
    key = PrivateKey(public.name, seed)
    if key.public() != public:
        raise VerificationError(f"{where}: its private key is not that of {public.vkey}")
    return key
