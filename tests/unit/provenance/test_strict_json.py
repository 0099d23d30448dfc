"""Canonical JSON and the envelopes made of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import VerificationError
from memory_audit.provenance import dsse, strict_json
from memory_audit.provenance.ed25519 import PrivateKey

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=10,
)
alice, bob = PrivateKey("alice", b"a" * 32), PrivateKey("bob", b"b" * 32)
KEYS = {key.public().key_id: key.public() for key in (alice, bob)}


def decode(data):
    return strict_json.decode(data, max_bytes=1_000, where="test")


@given(values)
def test_round_trips(value):
    data = strict_json.encode(value)
    assert strict_json.decode(data, max_bytes=10**6, where="test") == value


@given(st.binary(max_size=60))
def test_any_bytes_are_the_one_encoding_or_refused(data):
    try:
        value = decode(data)
    except VerificationError:
        return
    assert strict_json.encode(value) == data


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1}', b'{"a":1,"a":1}', b'{"b":1,"a":1}', b"1.0", b"1e3", b"NaN", b"Infinity", b"-0", b'"\\u0041"',
        b'"\\ud800"', b"\xff", b"", b"[1,]", b" 1", b"1\n", b"[" * 600, b"9" * 990 + b".", b"{}x",
    ],
)  # fmt: skip
def test_other_spellings_are_refused(data):
    with pytest.raises(VerificationError, match=r"test: "):
        decode(data)


def test_deep_nesting_and_long_numbers_are_refused_cleanly():
    for data in (b"[" * 200_000, b"9" * 200_000):
        with pytest.raises(VerificationError, match="not canonical JSON"):
            strict_json.decode(data, max_bytes=10**6, where="test")


def test_the_limit_comes_before_parsing():
    with pytest.raises(VerificationError, match="1001 bytes of JSON, at most 1000"):
        decode(b"x" * 1_001)


@pytest.mark.parametrize("value", [1.5, {"a": [2.5]}, {1: 2}, b"bytes"])
def test_encode_refuses_other_types(value):
    with pytest.raises(TypeError):
        strict_json.encode(value)


@pytest.mark.parametrize(
    "read",
    [
        lambda fields: fields.text("number"),
        lambda fields: fields.text("missing"),
        lambda fields: fields.text("empty"),
        lambda fields: fields.text("text", 2),
        lambda fields: fields.whole("text", 9),
        lambda fields: fields.whole("true", 9),
        lambda fields: fields.whole("number", 6),
        lambda fields: fields.whole("number", 9, 8),
        lambda fields: fields.whole_or_none("text", 9),
        lambda fields: fields.hex_bytes("upper", 1),
        lambda fields: fields.hex_bytes("text", 2),
        lambda fields: fields.texts("number", 9),
        lambda fields: fields.objects("text", 9),
        lambda fields: fields.done(),
    ],
)
def test_fields_of_another_type_are_refused(read):
    fields = strict_json.Fields({"number": 7, "text": "abc", "empty": "", "true": True, "upper": "AB"}, "test")
    with pytest.raises(VerificationError, match="test: "):
        read(fields)


def test_an_envelope_round_trips():
    data = dsse.seal("type", b"payload", [alice, bob])
    envelope = dsse.parse_envelope(data, "type", max_bytes=10_000, where="e")
    assert envelope.payload == b"payload"
    assert dsse.verify_envelope(envelope, KEYS, 2, "log") == frozenset(KEYS)


@pytest.mark.parametrize(
    ("signers", "threshold", "problem"),
    [
        ([alice], 2, "signed by 1 log keys, expected 2"),
        ([alice, alice], 2, "signed by 1 log keys, expected 2"),
        ([alice, PrivateKey("eve", b"e" * 32)], 1, "no role log$"),
    ],
)
def test_thresholds_count_distinct_known_keys(signers, threshold, problem):
    envelope = dsse.parse_envelope(dsse.seal("type", b"p", signers), "type", max_bytes=10_000, where="e")
    with pytest.raises(VerificationError, match=problem):
        dsse.verify_envelope(envelope, KEYS, threshold, "log")


def test_an_envelope_of_another_type_is_refused_even_if_relabelled():
    data = dsse.seal("policy", b"p", [alice])
    with pytest.raises(VerificationError, match="payload type 'policy', expected 'manifest'"):
        dsse.parse_envelope(data, "manifest", max_bytes=10_000, where="e")
    relabelled = dsse.parse_envelope(data.replace(b'"policy"', b'"manifest"'), "manifest", max_bytes=10_000, where="e")
    with pytest.raises(VerificationError, match="does not verify"):
        dsse.verify_envelope(relabelled, KEYS, 1, "log")
