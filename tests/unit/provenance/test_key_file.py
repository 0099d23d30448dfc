"""Files of private keys: all forms read, one written."""

import os

import pytest

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.key_files.key_file import LockedKey, encode_key, no_secrets, read_key, read_offered
from memory_audit.provenance.key_files.pem import encode_pem
from memory_audit.provenance.keys import generate_keys, load_keyring, save_keyring

KEY = PrivateKey("memaudit/log", b"s" * 32)
OTHER = PrivateKey("memaudit/log", b"t" * 32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memaudit-log.key"


def put(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


def plain(_name):
    return None


def secret(_name):
    return b"pw"


FORMS = {
    "of earlier versions": (KEY.to_text(), no_secrets),
    "plain": (encode_key(KEY, plain).decode(), no_secrets),
    "encrypted": (encode_key(KEY, secret).decode(), secret),
    "plain, as OpenSSL writes it": (encode_pem(KEY.seed, None), no_secrets),
    "encrypted, as OpenSSL writes it": (encode_pem(KEY.seed, b"pw"), secret),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_signs_under_the_same_key(path, form):
    text, secrets = FORMS[form]
    key = read_key(put(path, text), secrets, {path.name: KEY.public()}.get)
    assert key.name == KEY.name
    assert key.public() == KEY.public()
    assert key.public().verifies(key.sign(b"m"), b"m")


def test_whose_an_encrypted_key_is_is_told_without_its_passphrase(path):
    key = read_key(put(path, FORMS["encrypted"][0]))
    assert isinstance(key, LockedKey)
    assert key.public() == KEY.public()
    with pytest.raises(UsageError, match="memaudit/log needs a passphrase"):
        key.sign(b"m")


def test_a_passphrase_is_asked_for_once(path):
    asked = []

    def once(name):
        asked.append(name)
        return b"pw"

    key = read_key(put(path, FORMS["encrypted"][0]), once)
    assert [key.sign(b"m") for _ in range(3)] == [KEY.sign(b"m")] * 3
    assert asked == ["memaudit/log"]


@pytest.mark.parametrize("passphrase", [None, b"pw"])
def test_a_key_under_the_name_of_another_is_refused(path, passphrase):
    put(path, f"{OTHER.public().vkey}\n{encode_pem(KEY.seed, passphrase)}")
    with pytest.raises(VerificationError, match=r"memaudit-log\.key: its private key is not that of memaudit/log"):
        read_key(path, secret).sign(b"m")


@pytest.mark.parametrize(
    ("text", "error", "line"),
    [
        (encode_pem(KEY.seed, None), UsageError, "does not say whose it is"),
        ("", VerificationError, "not a private key file"),
        ("memaudit/log\n", VerificationError, "not a private key file"),
        (KEY.public().vkey + "\n", UsageError, "0 PEM blocks"),
        (KEY.public().vkey + "\npkcs11:token=t\n", UsageError, "must name token, object and module-path"),
        ("x" * 9_000, VerificationError, "9000 bytes"),
    ],
)
def test_what_is_no_key_file_is_refused(path, text, error, line):
    with pytest.raises(error, match=line):
        read_key(put(path, text))


def test_a_module_that_another_user_names_is_not_loaded(path, monkeypatch):
    uri = "pkcs11:token=t;object=o?module-path=/usr/lib/x.so"
    put(path, f"{KEY.public().vkey}\n{uri}\n")
    assert read_key(path).public() == KEY.public()
    if os.geteuid() == 0:
        os.chown(path, 4_321, 0)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4_321)
    with pytest.raises(UsageError, match="names a module to load, and is another user's file"):
        read_key(path)


@pytest.mark.parametrize("passphrase", [None, b"pw"])
def test_a_key_folder_round_trips_with_and_without_a_passphrase(tmp_path, passphrase):
    keyring = generate_keys("acme")
    save_keyring(keyring, tmp_path / "k", lambda _: passphrase)
    again = load_keyring(tmp_path / "k", secret)
    for role, (key,) in keyring.keys.items():
        assert [held.sign(b"m") for held in again.signers(role)] == [key.sign(b"m")]


def test_a_key_folder_of_an_earlier_version_stays_readable(tmp_path):
    keyring = generate_keys()
    save_keyring(keyring, tmp_path / "k")
    for keys in keyring.keys.values():
        for key in keys:
            assert isinstance(key, PrivateKey)
            (tmp_path / "k" / f"{key.name.replace('/', '-')}.key").write_text(key.to_text())
    assert dict(load_keyring(tmp_path / "k").keys) == dict(keyring.keys)


def test_a_key_that_is_not_needed_is_not_opened(tmp_path):
    save_keyring(generate_keys(), tmp_path / "k", lambda name: b"pw" if name.endswith("root") else None)
    keyring = load_keyring(tmp_path / "k")
    assert keyring.holds("root")
    assert keyring.signers("log")
    with pytest.raises(UsageError, match="memaudit/root needs a passphrase"):
        keyring.signers("root")


def test_what_a_user_brings_is_taken_in_each_form(path):
    public = KEY.public()
    assert read_offered(put(path, public.vkey + "\n"), "other", no_secrets) == public
    for text, secrets in FORMS.values():
        key = read_offered(put(path, text), "memaudit/log", secrets)
        assert key == KEY


@pytest.mark.parametrize(
    ("text", "mode", "line"),
    [
        (encode_pem(KEY.seed, None), 0o644, "is open to others: chmod 600 it"),
        (f"{KEY.public().vkey}\npkcs11:token=t;object=o?module-path=/x.so\n", 0o600, "names a key in a token"),
    ],
)
def test_what_a_user_brings_is_refused(path, text, mode, line):
    put(path, text).chmod(mode)
    with pytest.raises(UsageError, match=line):
        read_offered(path, "memaudit/log", no_secrets)
