"""Keys: C2SP vkeys, Go's private key text, and the public keys that are refused."""

import secrets

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_core_ed25519_add

from memory_audit.errors import UsageError, VerificationError
from memory_audit.provenance import base64_strict
from memory_audit.provenance.ed25519 import PrivateKey, PublicKey, derived_secret, first_forged

C2SP_EXAMPLE = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"

# Encodings of the points whose order divides 8 (canonical), from their definition: y = 1, -1, 0 and the roots of
# the order-8 equation; the sign bit gives the other of each pair.
LOW_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
]


def test_the_example_of_the_specification_round_trips():
    assert PublicKey.from_vkey(C2SP_EXAMPLE).vkey == C2SP_EXAMPLE


@pytest.mark.parametrize("raw", LOW_ORDER)
def test_low_order_keys_are_refused(raw):
    with pytest.raises(VerificationError, match="prime-order group"):
        PublicKey("key", bytes.fromhex(raw))


@pytest.mark.parametrize("raw", LOW_ORDER[1:])
def test_keys_of_mixed_order_are_refused(raw):
    honest = PrivateKey("signer", b"s" * 32).public().raw
    with pytest.raises(VerificationError, match="prime-order group"):
        PublicKey("key", crypto_core_ed25519_add(honest, bytes.fromhex(raw)))


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "prime-order group"),
        ("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "prime-order group"),
        ("ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", "prime-order group"),
        ("0100000000000000000000000000000000000000000000000000000000000080", "prime-order group"),
        ("0200000000000000000000000000000000000000000000000000000000000000", "prime-order group"),
        ("00", "1 bytes, expected 32"),
    ],
)
def test_malformed_keys_are_refused(raw, problem):
    with pytest.raises(VerificationError, match=problem):
        PublicKey("key", bytes.fromhex(raw))


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=80))
def test_honest_keys_are_accepted_and_verify(seed, message):
    key = PrivateKey("signer", seed)
    public = PublicKey.from_vkey(key.public().vkey)
    signature = key.sign(message)
    assert public.verifies(signature, message)
    assert not public.verifies(signature, message + b"x")
    assert not public.verifies(signature[:-1], message)
    assert PrivateKey.from_text(key.to_text(), "file") == key


@pytest.mark.parametrize(
    "change",
    [
        lambda vkey: vkey.replace("530d903a", "530d903b"),
        lambda vkey: vkey.replace("530d903a", "530D903A"),
        lambda vkey: vkey.replace("foo", "bar"),
        lambda vkey: vkey + "=",
        lambda vkey: vkey[:-1] + "l",
        lambda vkey: vkey.replace("+Ae", "+Be"),
        lambda vkey: "x" * 1000 + vkey,
        lambda vkey: vkey.replace("example.com/foo", "example com/foo"),
        lambda _: "",
    ],
)
def test_a_changed_vkey_is_refused(change):
    with pytest.raises(VerificationError):
        PublicKey.from_vkey(change(C2SP_EXAMPLE))


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\u2003b", "a\nb", "x" * 201])
def test_names_that_no_note_can_carry_are_refused(name):
    with pytest.raises(VerificationError, match="key name"):
        PrivateKey.generate(name)


def test_errors_and_repr_never_show_the_seed():
    key = PrivateKey.generate("secret")
    seed = base64_strict.encode(b"\x01" + key.seed)
    damaged = key.to_text()[:-3] + "A=\n"
    with pytest.raises(VerificationError) as failure:
        PrivateKey.from_text(damaged, "k.key")
    assert seed[:20] not in str(failure.value)
    assert seed[:20] not in repr(key)
    assert key.seed.hex() not in repr(key)


@pytest.mark.parametrize("text", ["", "AB==", "A", "AAA", "AAAA\n", " AAAA", "AA=="[:-1], "QUJ-"])
def test_base64_has_one_form(text):
    if text == "":
        assert base64_strict.decode(text, "x") == b""
        return
    with pytest.raises(VerificationError, match="base64"):
        base64_strict.decode(text, "x")


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=80), st.integers(0, 64 * 8 - 1))
def test_openssl_agrees_on_keys_signatures_and_forgeries(seed, message, bit):
    key, other = PrivateKey("signer", seed), Ed25519PrivateKey.from_private_bytes(seed)
    assert key.public().raw == other.public_key().public_bytes_raw()
    signature = key.sign(message)
    assert signature == other.sign(message)
    forged = (int.from_bytes(signature, "little") ^ 1 << bit).to_bytes(64, "little")
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(key.public().raw).verify(forged, message)
    assert not key.public().verifies(forged, message)


def test_a_signature_cannot_lend_bytes_to_its_message():
    key = PrivateKey("signer", b"s" * 32)
    signature = key.sign(b"ab")
    assert key.public().verifies(signature, b"ab")
    assert not key.public().verifies(signature + b"a", b"b")
    assert not key.public().verifies(signature[:-1], signature[-1:] + b"ab")


@pytest.mark.parametrize("forged", [0, 1, 4])
def test_the_first_forgery_of_many_is_found(forged):
    keys = [PrivateKey("k", bytes([number]) * 32) for number in range(1, 6)]
    signed = [key.sign(b"m") + b"m" for key in keys]
    raw = [key.public().raw for key in keys]
    assert first_forged(signed, raw) is None
    for number in range(forged, 5):
        signed[number] = signed[number][:-1] + b"x"
    assert first_forged(signed, raw) == forged


def test_nothing_holds_no_forgery():
    assert first_forged((), ()) is None


def test_a_derived_secret_is_of_its_key_and_purpose_alone():
    one, two = PrivateKey("k", b"s" * 32), PrivateKey("k", b"t" * 32)
    found = [derived_secret(key, purpose) for key in (one, two) for purpose in (b"a", b"b")]
    assert len({*found, one.seed, two.seed, one.public().raw, two.public().raw}) == 8
    assert {len(secret) for secret in found} == {32}
    assert derived_secret(one, b"a") == derived_secret(PrivateKey("renamed", b"s" * 32), b"a")


def test_no_secret_is_derived_from_signatures_that_differ():
    class Hedged(PrivateKey):
        """Signs as a token does that adds randomness of its own."""

        def sign(self, message):
            return secrets.token_bytes(64)

    with pytest.raises(UsageError, match="signs the same bytes differently each time"):
        derived_secret(Hedged("k", b"s" * 32), b"a")
