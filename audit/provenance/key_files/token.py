"""Keys in a token, such as a hardware security module, named by a PKCS#11 URI (RFC 7512) and asked through PKCS#11.

    pkcs11:token=memaudit;object=log?module-path=/usr/lib/softhsm/libsofthsm2.so

`token` (or `serial`), `object` (or `id`) and `module-path` are taken, and `type=private`. A reader MUST refuse any
other attribute, above all `pin-value`: a PIN never stands beside the key that it opens. The token signs by CKM_EDDSA
(PKCS#11 3.0); each signature is verified before it is used, so that a URI that names another key, or a faulty token,
signs nothing. The module is a program that runs in this process: the file that names it must be the user's own.

Needs the library python-pkcs11 (extra `hsm`), which is imported when a token is first asked.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote_to_bytes

from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.provenance.ed25519 import PublicKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["URI_SCHEME", "TokenKey", "TokenSigner", "generate_on_token", "public_key_on_token"]

URI_SCHEME = "pkcs11:"

POINT_BYTES = 32
_OCTET_STRING = bytes((0x04, POINT_BYTES))
_ED25519 = bytes.fromhex("06032b6570")
"""The curve's object identifier, as the parameters of a key that is generated."""

_TAKEN = ("token", "serial", "object", "id", "type", "module-path")

_PROBLEMS = {
    "NoSuchToken": "no such token is present",
    "TokenNotPresent": "no such token is present",
    "MultipleTokensReturned": "several tokens are called so: name the serial, too",
    "NoSuchKey": "the token has no such key",
    "MultipleObjectsReturned": "several keys are called so: name label and id",
    "PinIncorrect": "the PIN is wrong; a token locks it after a few wrong ones",
    "PinInvalid": "the PIN is wrong; a token locks it after a few wrong ones",
    "PinLenRange": "the PIN is too short or too long for the token",
    "PinLocked": "the PIN is locked: only the token's security officer can set another",
    "PinExpired": "the PIN has expired: set another with the token's own program",
    "UserPinNotInitialized": "the token has no PIN yet: set one with its own program",
    "MechanismInvalid": "the token cannot sign by Ed25519 (CKM_EDDSA)",
    "TokenWriteProtected": "the token is write-protected",
}
"""Of the names of python-pkcs11's exceptions, those that a user can do something about."""

_sessions: dict[tuple[str, str, str], Any] = {}
"""Open and logged in, by module, token and serial: a process logs in to a token once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenKey:
    """Where a key lies."""

    module: str
    """Path of the PKCS#11 module, a shared library."""

    token: str = ""
    serial: str = ""
    object: str = ""
    """The key's label."""

    id: bytes = b""

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """Read a URI.

        Raises:
            UsageError: not one as the module's docstring says.
        """
        if not text.startswith(URI_SCHEME):
            raise UsageError(f"{where}: expected a PKCS#11 URI ({URI_SCHEME}…)")
        path, _, query = text.removeprefix(URI_SCHEME).partition("?")
        parts = [*filter(None, path.split(";")), *filter(None, query.split("&"))]
        given: dict[str, bytes] = {}
        for name, _, value in (part.partition("=") for part in parts):
            if name in {"pin-value", "pin-source"}:
                raise UsageError(f"{where}: {name} in a PKCS#11 URI is not taken: a PIN comes as passphrases do")
            if name not in _TAKEN or name in given:
                raise UsageError(f"{where}: {name!r:.40} in a PKCS#11 URI, expected each of {', '.join(_TAKEN)} once")
            given[name] = unquote_to_bytes(value)
        if given.pop("type", b"private") != b"private":
            raise UsageError(f"{where}: expected the PKCS#11 URI of a private key")
        module, key_id = given.pop("module-path", b""), given.pop("id", b"")
        try:
            named = {name: value.decode() for name, value in given.items()}
            key = cls(module=module.decode(), id=key_id, **named)
        except UnicodeDecodeError:
            raise UsageError(f"{where}: a PKCS#11 URI that is not UTF-8") from None
        if not key.module.startswith("/") or not (key.token or key.serial) or not (key.object or key.id):
            raise UsageError(f"{where}: a PKCS#11 URI must name token, object and module-path, the latter from / on")
        return key

    def uri(self) -> str:
        """Return the one URI of it."""
        texts = {"token": self.token, "serial": self.serial, "object": self.object}
        path = [f"{name}={quote(value, safe='')}" for name, value in texts.items() if value]
        if self.id:
            path.append("id=" + "".join(f"%{byte:02x}" for byte in self.id))
        return f"{URI_SCHEME}{';'.join(path)}?module-path={quote(self.module)}"

    def labels(self) -> dict[str, str | bytes]:
        """Return what python-pkcs11 finds the key by."""
        return {name: value for name, value in (("label", self.object), ("id", self.id)) if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSigner:
    """Signs by a token, which it has been opened with the PIN of."""

    key: TokenKey
    verifier: PublicKey
    where: str
    handle: Any = field(repr=False)
    """python-pkcs11's private key."""

    @property
    def name(self) -> str:
        """The key's name."""
        return self.verifier.name

    @classmethod
    def open(cls, key: TokenKey, public: PublicKey, pin: Callable[[], bytes], where: str) -> Self:
        """Log in to the token, where this process has not yet, and find the key.

        Raises:
            UsageError: no such module, token or key; the PIN is wrong or locked; or python-pkcs11 is missing.
            IncompleteError: the token failed.
        """
        with _told(key, where) as pkcs11:
            handle = _session(key, pin).get_key(object_class=pkcs11.ObjectClass.PRIVATE_KEY, **key.labels())
            if handle.key_type is not pkcs11.KeyType.EC_EDWARDS:
                raise UsageError(f"{where}: a key of type {handle.key_type.name} in the token, expected Ed25519")
            return cls(key=key, verifier=public, where=where, handle=handle)

    def public(self) -> PublicKey:
        """Return the verification key, as the key's file says it."""
        return self.verifier

    def sign(self, message: bytes) -> bytes:
        """Sign: 64 bytes.

        Raises:
            VerificationError: the token signs with another key, or wrongly.
            IncompleteError: it is gone, or failed.
        """
        with _told(self.key, self.where) as pkcs11:
            signature = bytes(self.handle.sign(message, mechanism=pkcs11.Mechanism.EDDSA))
        if not self.verifier.verifies(signature, message):
            raise VerificationError(f"{self.where}: what the token signs does not verify under {self.verifier.vkey}")
        return signature


def public_key_on_token(key: TokenKey, name: str, pin: Callable[[], bytes], where: str) -> PublicKey:
    """Ask a token for the public half of a key.

    Raises:
        UsageError, IncompleteError: as `TokenSigner.open`.
        VerificationError: the name or the key is refused.
    """
    with _told(key, where) as pkcs11:
        found = _session(key, pin).get_key(object_class=pkcs11.ObjectClass.PUBLIC_KEY, **key.labels())
        point = bytes(found[pkcs11.Attribute.EC_POINT])  # some tokens give it bare
        return PublicKey(name, point if len(point) == POINT_BYTES else point.removeprefix(_OCTET_STRING))


def generate_on_token(key: TokenKey, pin: Callable[[], bytes], where: str) -> None:
    """Make a key in a token that cannot be taken out of it.

    Raises:
        UsageError: there is one of that label, or as `TokenSigner.open`.
        IncompleteError: the token failed.
    """
    with _told(key, where) as pkcs11:
        found = {pkcs11.Attribute[name.upper()]: value for name, value in key.labels().items()}
        with _session(key, pin).token.open(rw=True) as session:  # it shares the login
            if any(True for _ in session.get_objects(found)):
                raise UsageError(f"{where}: the token has that key already, and none is overwritten ({key.uri():.200})")
            curve = session.create_domain_parameters(
                pkcs11.KeyType.EC_EDWARDS, {pkcs11.Attribute.EC_PARAMS: _ED25519}, local=True
            )
            curve.generate_keypair(
                mechanism=pkcs11.Mechanism.EC_EDWARDS_KEY_PAIR_GEN, store=True, label=key.object, id=key.id or None
            )


def _session(key: TokenKey, pin: Callable[[], bytes]) -> Any:
    import pkcs11  # noqa: PLC0415

    place = (key.module, key.token, key.serial)
    if place not in _sessions:
        token = pkcs11.lib(key.module).get_token(
            **({"token_label": key.token} if key.token else {}),
            **({"token_serial": key.serial.encode()} if key.serial else {}),
        )
        _sessions[place] = token.open(user_pin=pin().decode("utf-8", "surrogateescape"))
    return _sessions[place]


@contextmanager
def _told(key: TokenKey, where: str) -> Iterator[Any]:
    """Give the library, and turn its errors into lines."""
    try:
        import pkcs11  # noqa: PLC0415 - its module is a program of the token's maker
    except ImportError:
        raise UsageError(f"{where}: a key in a token needs the extra hsm: pip install 'memory-audit[hsm]'") from None
    try:
        yield pkcs11
    except pkcs11.PKCS11Error as error:
        kind, said = type(error).__name__, str(error)
        if kind in _PROBLEMS:
            raise UsageError(f"{where}: {_PROBLEMS[kind]} ({key.uri():.200})") from None
        if said.startswith("OS exception while loading"):
            raise UsageError(f"{where}: {key.module:.200} is no PKCS#11 module that can be loaded") from None
        lost = _sessions.pop((key.module, key.token, key.serial), None)
        with suppress(pkcs11.PKCS11Error):  # else the process would stay logged in, and could not log in again
            if lost is not None:
                lost.close()
        raise IncompleteError(f"{where}: the token failed ({kind}{f', {said:.100}' if said else ''})") from None
