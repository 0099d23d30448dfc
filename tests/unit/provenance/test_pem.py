"""PKCS#8 PEM files: what OpenSSL reads of ours, what we read of OpenSSL's, and what is refused."""

import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance.ed25519 import PrivateKey
from memory_audit.provenance.key_files.pem import decode_pem, decode_public_pem, encode_pem, is_encrypted

SEED = bytes(range(32))
seeds = st.binary(min_size=32, max_size=32)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")


def openssl(*words: str, text: str = "") -> str:
    done = subprocess.run(["openssl", *words], input=text, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@given(seeds)
def test_a_plain_key_round_trips_and_is_what_cryptography_writes(seed):
    text = encode_pem(seed, None)
    assert decode_pem(text, None, "f") == seed
    assert load_pem_private_key(text.encode(), None).private_bytes_raw() == seed


@settings(max_examples=4)
@given(seeds, st.binary(min_size=1, max_size=1_024), st.binary(min_size=1, max_size=40))
def test_an_encrypted_key_opens_by_its_passphrase_alone(seed, passphrase, other):
    text = encode_pem(seed, passphrase)
    assert is_encrypted(text, "f")
    assert decode_pem(text, passphrase, "f") == seed
    if other != passphrase:
        with pytest.raises(UsageError, match="the passphrase is wrong, or the file is damaged"):
            decode_pem(text, other, "f")


def test_two_encryptions_of_a_key_have_nothing_in_common():
    one, two = (encode_pem(SEED, b"pw").splitlines()[2:-1] for _ in range(2))
    assert not set(one) & set(two)


@needs_openssl
@pytest.mark.parametrize("passphrase", [None, b"correct horse", "Schlüssel".encode(), b"-----BEGIN X-----"])
def test_openssl_reads_our_files(tmp_path, passphrase):
    key = PrivateKey("memaudit/log", SEED)
    (tmp_path / "k.key").write_text(f"{key.public().vkey}\n{encode_pem(SEED, passphrase)}")
    (tmp_path / "pw").write_bytes((passphrase or b"") + b"\n")
    words = "pkey", "-in", str(tmp_path / "k.key"), "-passin", f"file:{tmp_path / 'pw'}"
    assert decode_public_pem(openssl(*words, "-pubout"), "f") == key.public().raw
    assert decode_pem(openssl(*words), None, "f") == SEED


@needs_openssl
@pytest.mark.parametrize(
    "words",
    [
        ("genpkey", "-algorithm", "ed25519"),
        ("genpkey", "-algorithm", "ed25519", "-aes-256-cbc", "-pass", "pass:pw"),
        ("genpkey", "-algorithm", "ed25519", "-aes128", "-pass", "pass:pw"),
    ],
)
def test_we_read_the_files_of_openssl(words):
    text = openssl(*words)
    seed = decode_pem(text, b"pw" if is_encrypted(text, "f") else None, "f")
    plain = openssl("pkey", "-passin", "pass:pw", text=text)
    public = decode_public_pem(openssl("pkey", "-pubout", text=plain), "f")
    assert PrivateKey("k", seed).public().raw == public


@needs_openssl
@pytest.mark.parametrize("words", [("-scrypt",), ("-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA512", "-iter", "9")])
def test_we_read_what_openssl_encrypts_in_other_ways(words):
    text = openssl("pkcs8", "-topk8", "-passout", "pass:pw", *words, text=encode_pem(SEED, None))
    assert decode_pem(text, b"pw", "f") == SEED


@needs_openssl
@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("-algorithm", "rsa"), "RSA"),
        (("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"), "EC"),
        (("-algorithm", "ed448"), "Ed448"),
        (("-algorithm", "x25519"), "X25519"),
    ],
)
def test_keys_of_another_type_are_named(words, kind):
    text = openssl("genpkey", *words)
    with pytest.raises(UsageError, match=f"f: a key of type {kind}, expected Ed25519"):
        decode_pem(text, None, "f")
    with pytest.raises(UsageError, match=f"f: expected one Ed25519 key, got {kind}"):
        decode_public_pem(openssl("pkey", "-pubout", text=text), "f")


@pytest.mark.parametrize(
    ("text", "error", "line"),
    [
        (encode_pem(SEED, None) * 2, UsageError, "2 PEM blocks, expected one private key"),
        ("", UsageError, "0 PEM blocks"),
        ("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n", UsageError, "'RSA PRIVATE KEY'"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", VerificationError, "damaged"),
        (encode_pem(SEED, None).replace("MC4C", "MC4D"), VerificationError, "damaged"),
        (encode_pem(SEED, None)[:-30], VerificationError, "damaged"),
    ],
)
def test_what_is_no_single_key_is_refused_in_one_line(text, error, line):
    with pytest.raises(error, match=line) as failure:
        decode_pem(text, None, "f")
    assert "\n" not in str(failure.value)
    assert "MC4C" not in str(failure.value)


@settings(max_examples=200)
@given(st.text(max_size=200), st.integers(0, 110), st.integers(0, 3))
def test_whatever_a_file_holds_is_a_key_or_an_error_of_ours(text, place, mode):
    whole = encode_pem(SEED, None)
    text = [text, whole[:place] + text + whole[place:], whole[:place] + text, text + whole][mode]
    try:
        assert len(decode_pem(text, None, "f")) == 32
    except (UsageError, VerificationError) as error:
        assert "\n" not in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("text", ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "x"])
def test_what_is_no_public_key_is_refused(text):
    with pytest.raises(UsageError, match="no public key"):
        decode_public_pem(text, "f")
