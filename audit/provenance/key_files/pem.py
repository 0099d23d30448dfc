"""Ed25519 keys as PKCS#8 PEM (RFC 8410, RFC 7468), plain or under a passphrase: what `openssl pkey` reads and writes.

    -----BEGIN ENCRYPTED PRIVATE KEY-----
    MIGTME8GCSqGSIb3DQEFDTBCMCEG…
    -----END ENCRYPTED PRIVATE KEY-----

Under a passphrase it is PBES2 (RFC 8018) with scrypt (RFC 7914) and AES-256-CBC. N = 2^14, r = 8 and p = 5 is the
setting of OWASP's list whose memory OpenSSL's own limit (32 MiB) admits. `cryptography` alone would derive the key by
2,048 rounds of PBKDF2. It reads all that OpenSSL writes, PBKDF2 too.

A reader MUST refuse a file with another number of PEM blocks than one, another block than these two, and a key of
another type than Ed25519.
"""

from __future__ import annotations

import base64
import re
import secrets

from memory_audit.errors import UsageError, VerificationError

__all__ = ["decode_pem", "decode_public_pem", "encode_pem", "is_encrypted"]

PLAIN, ENCRYPTED = "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"

SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 14, 8, 5

_BEGIN = re.compile(r"^-----BEGIN ([^\n]*?)-----\s*$", re.MULTILINE)
_LINE = 64
"""Characters (RFC 7468 §2)."""

_SEED_HEAD = bytes.fromhex("302e020100300506032b657004220420")
"""What precedes the seed in a PrivateKeyInfo of Ed25519 (RFC 8410 §7)."""

_INTEGER, _OCTETS, _OID, _SEQUENCE = 0x02, 0x04, 0x06, 0x30
_PBES2, _SCRYPT, _AES256_CBC = map(
    bytes.fromhex, ("2a864886f70d01050d", "2b06010401da47040b", "60864801650304012a")
)  # fmt: skip


def encode_pem(seed: bytes, passphrase: bytes | None) -> str:
    """Return a seed of 32 bytes as PKCS#8 PEM, encrypted where there is a passphrase."""
    label, data = PLAIN, _SEED_HEAD + seed
    if passphrase is not None:
        label, data = ENCRYPTED, _encrypted(data, passphrase)
    text = base64.b64encode(data).decode()
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))


def is_encrypted(text: str, where: str) -> bool:
    """Tell whether a PEM is under a passphrase.

    Raises:
        UsageError: it is no single private key in PKCS#8.
    """
    labels = _BEGIN.findall(text)
    if len(labels) != 1:
        raise UsageError(f"{where}: {len(labels)} PEM blocks, expected one private key")
    if labels[0] not in {PLAIN, ENCRYPTED}:
        raise UsageError(f"{where}: a PEM block of {labels[0]!r:.40}, expected a private key in PKCS#8 (openssl pkey)")
    return bool(labels[0] == ENCRYPTED)


def decode_pem(text: str, passphrase: bytes | None, where: str) -> bytes:
    """Return the seed of a PKCS#8 PEM; text before the block is passed over, as RFC 7468 says.

    Args:
        text: The file.
        passphrase: Given exactly where `is_encrypted`.
        where: The file's name, for errors, which never show what is in it.

    Raises:
        UsageError: the wrong passphrase, or no Ed25519 key.
        VerificationError: damaged.
    """
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - readers of stores have no need of it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    encrypted = is_encrypted(text, where)
    try:
        key = load_pem_private_key(text.encode(), passphrase)
    except UnsupportedAlgorithm:
        raise UsageError(f"{where}: of a type or encrypted in a way that is not supported, expected Ed25519") from None
    except ValueError:
        if encrypted:  # a wrong key gives bytes that are no key either
            raise UsageError(f"{where}: the passphrase is wrong, or the file is damaged") from None
        raise VerificationError(f"{where}: damaged private key") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{where}: a key of type {_kind(key)}, expected Ed25519 (openssl genpkey -algorithm ed25519)")
    return key.private_bytes_raw()


def decode_public_pem(text: str, where: str) -> bytes:
    """Return the 32 bytes of a public key as `openssl pkey -pubout` writes it.

    Raises:
        UsageError: no single PEM of an Ed25519 key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    try:
        key = load_pem_public_key(text.encode())
    except (UnsupportedAlgorithm, ValueError):
        raise UsageError(f"{where}: no public key of a type that is known") from None
    if len(_BEGIN.findall(text)) != 1 or not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{where}: expected one Ed25519 key, got {_kind(key)}")
    return key.public_bytes_raw()


def _kind(key: object) -> str:
    return type(key).__name__.removesuffix("Key").removesuffix("Private").removesuffix("Public")


def _encrypted(data: bytes, passphrase: bytes) -> bytes:
    """Return an EncryptedPrivateKeyInfo (RFC 5958 §3)."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt  # noqa: PLC0415
    from cryptography.hazmat.primitives.padding import PKCS7  # noqa: PLC0415

    salt, iv = secrets.token_bytes(16), secrets.token_bytes(16)
    key = Scrypt(salt=salt, length=32, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P).derive(passphrase)
    padder, encryptor = PKCS7(128).padder(), Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    hidden = encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()
    costs = (_der(_INTEGER, number.to_bytes(2, "big").lstrip(b"\0")) for number in (SCRYPT_N, SCRYPT_R, SCRYPT_P))
    derivation = _der(_SEQUENCE, _der(_OID, _SCRYPT), _der(_SEQUENCE, _der(_OCTETS, salt), *costs))
    cipher = _der(_SEQUENCE, _der(_OID, _AES256_CBC), _der(_OCTETS, iv))
    scheme = _der(_SEQUENCE, _der(_OID, _PBES2), _der(_SEQUENCE, derivation, cipher))
    return _der(_SEQUENCE, scheme, _der(_OCTETS, hidden))


def _der(tag: int, *parts: bytes) -> bytes:
    """Encode a value of less than 256 bytes."""
    body = b"".join(parts)
    length = bytes((len(body),)) if len(body) < 0x80 else bytes((0x81, len(body)))  # noqa: PLR2004 - X.690 §8.1.3
    return bytes((tag,)) + length + body
