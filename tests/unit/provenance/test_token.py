"""Keys in tokens: their URIs, and signing by SoftHSM as by any PKCS#11 module."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.provenance.ed25519 import PrivateKey, derived_secret
from memory_audit.provenance.key_files import token
from memory_audit.provenance.key_files.key_file import encode_key, read_key
from memory_audit.provenance.key_files.token import TokenKey, TokenSigner, generate_on_token, public_key_on_token
from tests.soft_token import PIN, soft_token

labels = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)

needs_softhsm = pytest.mark.tool("softhsm")


@pytest.fixture(scope="module")
def softhsm(tmp_path_factory):
    """The key `log` in a token."""
    with soft_token(tmp_path_factory.mktemp("softhsm")) as uri:
        key = TokenKey.parse(uri("log"), "f")
        generate_on_token(key, pin, "f")
        yield key


def pin():
    return PIN.encode()


def wrong():
    return b"4321"


@given(labels, labels, st.binary(max_size=8))
def test_a_uri_names_what_it_was_made_of(label, token_label, key_id):
    key = TokenKey(module="/opt/a b/m.so", token=token_label, object=label, id=key_id)
    assert TokenKey.parse(key.uri(), "f") == key
    assert key.uri().isascii()
    assert key.uri().isprintable()


def test_the_uri_of_other_programs_is_taken():
    uri = "pkcs11:serial=a1;token=my%20token;id=%01%02;object=log;type=private?module-path=/usr/lib/m.so"
    key = TokenKey(module="/usr/lib/m.so", serial="a1", token="my token", id=b"\x01\x02", object="log")  # noqa: S106
    assert TokenKey.parse(uri, "f") == key


@pytest.mark.parametrize(
    ("uri", "line"),
    [
        ("pkcs11:token=t;object=o?module-path=/m.so&pin-value=1234", "pin-value in a PKCS#11 URI is not taken"),
        ("pkcs11:token=t;object=o?module-path=/m.so&pin-source=file:/p", "pin-source in a PKCS#11 URI is not taken"),
        ("pkcs11:token=t;object=o;slot-id=3?module-path=/m.so", "'slot-id' in a PKCS#11 URI"),
        ("pkcs11:token=t;token=u;object=o?module-path=/m.so", "'token' in a PKCS#11 URI"),
        ("pkcs11:token=t;object=o;type=cert?module-path=/m.so", "of a private key"),
        ("pkcs11:token=t;object=o?module-path=m.so", "must name token, object and module-path"),
        ("pkcs11:token=t?module-path=/m.so", "must name token, object and module-path"),
        ("pkcs11:object=o?module-path=/m.so", "must name token, object and module-path"),
        ("pkcs11:token=%ff;object=o?module-path=/m.so", "not UTF-8"),
        ("token=t;object=o?module-path=/m.so", "expected a PKCS#11 URI"),
        ("", "expected a PKCS#11 URI"),
    ],
)
def test_a_uri_that_is_not_taken_says_why(uri, line):
    with pytest.raises(UsageError, match=line) as failure:
        TokenKey.parse(uri, "f")
    assert "1234" not in str(failure.value)


@needs_softhsm
def test_a_token_signs_as_a_key_in_memory_does(softhsm):
    public = public_key_on_token(softhsm, "memaudit/log", pin, "f")
    signer = TokenSigner.open(softhsm, public, pin, "f")
    for message in (b"", b"m", b"m" * 100_000):
        assert public.verifies(signer.sign(message), message)
    assert signer.sign(b"m") == signer.sign(b"m")
    assert derived_secret(signer, b"a") != derived_secret(signer, b"b")


@needs_softhsm
def test_its_file_names_it_and_holds_no_secret(softhsm, tmp_path):
    public = public_key_on_token(softhsm, "memaudit/log", pin, "f")
    path = tmp_path / "memaudit-log.key"
    path.write_bytes(encode_key(TokenSigner.open(softhsm, public, pin, "f"), lambda _: b"unused"))
    assert path.read_text() == f"{public.vkey}\n{softhsm.uri()}\n"
    key = read_key(path, lambda _: PIN.encode())
    assert key.public().verifies(key.sign(b"m"), b"m")


@needs_softhsm
def test_a_private_key_does_not_leave_the_token(softhsm):
    import pkcs11.exceptions  # noqa: PLC0415

    handle = TokenSigner.open(softhsm, PrivateKey("k", b"s" * 32).public(), pin, "f").handle
    assert (handle[pkcs11.Attribute.SENSITIVE], handle[pkcs11.Attribute.EXTRACTABLE]) == (True, False)
    with pytest.raises(pkcs11.PKCS11Error):
        handle[pkcs11.Attribute.VALUE]


@needs_softhsm
def test_a_key_that_is_not_the_one_named_signs_nothing(softhsm):
    signer = TokenSigner.open(softhsm, PrivateKey("memaudit/log", b"s" * 32).public(), pin, "private key l.key")
    with pytest.raises(VerificationError, match=r"l\.key: what the token signs does not verify under memaudit/log"):
        signer.sign(b"m")


@needs_softhsm
def test_no_key_is_made_over_another(softhsm):
    with pytest.raises(UsageError, match="has that key already, and none is overwritten"):
        generate_on_token(softhsm, pin, "f")


@needs_softhsm
@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"token": "none"}, "no such token is present"),
        ({"object": "none"}, "the token has no such key"),
        ({"module": "/none.so"}, "/none.so is no PKCS#11 module that can be loaded"),
    ],
)
def test_what_is_not_there_is_named(softhsm, change, line):
    key = TokenKey(**{"module": softhsm.module, "token": softhsm.token, "object": softhsm.object} | change)
    with pytest.raises(UsageError, match=f"f: {line}"):
        public_key_on_token(key, "k", pin, "f")


@needs_softhsm
def test_a_wrong_pin_is_tried_once_and_told(softhsm):
    token._sessions.pop((softhsm.module, softhsm.token, "")).close()
    tried = []

    def once():
        tried.append(1)
        return wrong()

    with pytest.raises(UsageError, match="the PIN is wrong; a token locks it"):
        public_key_on_token(softhsm, "k", once, "f")
    assert len(tried) == 1
    assert public_key_on_token(softhsm, "k", pin, "f")


@needs_softhsm
@pytest.mark.parametrize(
    ("name", "error", "line"),
    [
        ("PinLocked", UsageError, "the PIN is locked: only the token's security officer"),
        ("TokenNotPresent", UsageError, "no such token is present"),
        ("MultipleObjectsReturned", UsageError, "several keys are called so: name label and id"),
        ("DeviceRemoved", IncompleteError, r"the token failed \(DeviceRemoved\)"),
        ("DeviceError", IncompleteError, r"the token failed \(DeviceError\)"),
    ],
)
def test_what_a_token_says_becomes_one_line(softhsm, name, error, line):
    import pkcs11.exceptions  # noqa: PLC0415

    class Failing:
        """A private key of python-pkcs11 whose token says no."""

        def sign(self, _message, mechanism):
            raise getattr(pkcs11.exceptions, name)

    public = PrivateKey("k", b"s" * 32).public()
    with pytest.raises(error, match=line):
        TokenSigner(key=softhsm, verifier=public, where="f", handle=Failing()).sign(b"m")
    assert public_key_on_token(softhsm, "k", pin, "f")


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    with pytest.raises(UsageError, match=r"needs the extra hsm: pip install 'memory-audit\[hsm\]'"):
        public_key_on_token(TokenKey.parse("pkcs11:token=t;object=o?module-path=/m.so", "f"), "k", pin, "f")


def test_names_of_errors_are_those_of_the_library():
    pkcs11 = pytest.importorskip("pkcs11", reason="needs the extra hsm (python-pkcs11)")
    assert {name for name in token._PROBLEMS if not hasattr(pkcs11, name)} == set()
