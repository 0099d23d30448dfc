"""Deterministic CBOR: one encoding per value, and everything else refused. Oracle: cbor2."""

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import VerificationError
from memory_audit.provenance import cbor
from tests.conformance import cbor_reader


def is_encodable(text):
    try:
        cbor.encode_text(text)
    except ValueError:
        return False
    return True


nfc_text = st.text(max_size=20).filter(is_encodable)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.binary(max_size=40) | nfc_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(nfc_text, inner, max_size=4),
    max_leaves=12,
)


def decode(data):
    return cbor_reader.decode(data, max_bytes=10_000, where="test")


@given(values)
def test_round_trips_and_agrees_with_cbor2(value):
    try:
        data = cbor.encode(value)
    except ValueError:  # nested too deep
        return
    assert data == cbor2.dumps(value, canonical=True)
    again = decode(data)
    assert again == value
    assert type(again) is type(value)


@given(st.binary(max_size=60))
def test_any_bytes_are_the_one_encoding_of_their_value_or_refused(data):
    try:
        value = decode(data)
    except VerificationError:
        return
    assert cbor.encode(value) == data


@given(values, st.data())
def test_a_changed_byte_never_decodes_to_the_same_value(value, data):
    try:
        encoded = bytearray(cbor.encode(value))
    except ValueError:
        return
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= data.draw(st.integers(1, 255))
    try:
        other = decode(bytes(encoded))
    except VerificationError:
        return
    assert cbor.encode(other) != cbor.encode(value)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("1801", "shortest form"),
        ("190017", "shortest form"),
        ("1900ff", "shortest form"),
        ("1a0000ffff", "shortest form"),
        ("1b00000000ffffffff", "shortest form"),
        ("5801aa", "shortest form"),
        ("a2616200616100", "twice or out of order"),
        ("a2616100616101", "twice or out of order"),
        ("a10001", "not text"),
        ("9fff", "indefinite"),
        ("5f41aaff", "indefinite"),
        ("f97e00", "floats"),
        ("fb3ff199999999999a", "floats"),
        ("f7", "floats and simple values"),
        ("f818", "floats and simple values"),
        ("c11a514b67b0", "tags"),
        ("c249010000000000000000", "tags"),
        ("61ff", "UTF-8"),
        ("6365cc81", "NFC"),
        ("0000", "trailing"),
        ("", "announced"),
        ("62", "announced"),
        ("9b00000000ffffffff", "shortest form"),
        ("9a7fffffff", "items announced"),
        ("ba7fffffff", "items announced"),
        ("818181818181818181818100", "nesting"),
        ("1c", "indefinite length or reserved"),
    ],
)
def test_refuses(data, problem):
    with pytest.raises(VerificationError, match=problem):
        decode(bytes.fromhex(data))


def test_the_size_limit_comes_before_parsing():
    with pytest.raises(VerificationError, match="4 bytes of CBOR, at most 3"):
        cbor_reader.decode(b"\xff\xff\xff\xff", max_bytes=3, where="test")


@pytest.mark.parametrize("value", [1.5, {1: 2}, {"a": {2.5}}, object()])
def test_encode_refuses_other_types(value):
    with pytest.raises(TypeError):
        cbor.encode(value)


@pytest.mark.parametrize("value", [2**64, -(2**64) - 1, "e\u0301", "\ud800", [[[[[[[[[[]]]]]]]]]]])
def test_encode_refuses_values_outside_the_subset(value):
    with pytest.raises(ValueError, match=r"bits|NFC|surrogates|nested"):
        cbor.encode(value)
