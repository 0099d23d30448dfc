"""C2SP signed notes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.errors import VerificationError
from memory_audit.provenance.ed25519 import PrivateKey, PublicKey
from memory_audit.provenance.tlog.note import MAX_NOTE_BYTES, open_note, parse_note, sign_note

EXAMPLE_KEY = PublicKey.from_vkey("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
EXAMPLE = (
    "This is an example message.\n\n— example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
).encode()

alice, bob = PrivateKey("alice", b"a" * 32), PrivateKey("bob", b"b" * 32)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), max_size=60).map(lambda t: t + "\n")


def test_the_example_of_the_specification_opens():
    assert open_note(EXAMPLE, [EXAMPLE_KEY], where="note").text == "This is an example message.\n"


@settings(max_examples=50, deadline=None)
@given(texts)
def test_a_signed_note_opens_with_its_keys(text):
    note = sign_note(text, [alice, bob])
    opened = open_note(note, [alice.public(), bob.public()], threshold=2, where="note")
    assert opened.text == text
    assert [line.name for line in opened.signatures] == ["alice", "bob"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_changed_byte_of_a_note_goes_unseen(data):
    note = bytearray(sign_note("memaudit/s/t\n3\nAAAA\n", [alice]))
    note[data.draw(st.integers(0, len(note) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(VerificationError):
        open_note(bytes(note), [alice.public()], where="note")


def test_signatures_of_unknown_keys_are_ignored():
    note = sign_note("text\n", [bob, alice])
    assert [line.name for line in open_note(note, [alice.public()], where="note").signatures] == ["alice"]


def test_a_wrong_signature_of_a_known_key_refuses_the_note():
    good, other = sign_note("text\n", [alice]), sign_note("other\n", [bob])
    mixed = good + other.rpartition(b"\n\n")[2]
    with pytest.raises(VerificationError, match="signature of bob"):
        open_note(mixed, [alice.public(), bob.public()], where="note")


def test_one_key_signing_twice_counts_once():
    note = sign_note("text\n", [alice, alice])
    with pytest.raises(VerificationError, match="signed by 1 known keys, expected 2"):
        open_note(note, [alice.public(), bob.public()], threshold=2, where="note")


def test_one_key_under_two_names_counts_once():
    twin = PrivateKey("alice-again", alice.seed)
    note = sign_note("text\n", [alice, twin])
    with pytest.raises(VerificationError, match="signed by 1 known keys, expected 2"):
        open_note(note, [alice.public(), twin.public()], threshold=2, where="note")


@pytest.mark.parametrize(
    ("note", "problem"),
    [
        (b"text\n", "not a signed note"),
        (b"text\n\n", "not a signed note"),
        ("text\n\n— alice AAAAAAAA".encode(), "not a signed note"),
        (b"text\n\n- alice AAAAAAAA\n", "malformed"),
        ("text\n\n— alice\n".encode(), "malformed"),
        ("text\n\n— alice AAAAAA==\n".encode(), "holds 4 bytes"),
        ("text\n\n— alice AAAAAAB=\n".encode(), "base64"),
        ("text\n\n— al+ice AAAAAAAA\n".encode(), "malformed"),
        ("te\rxt\n\n— alice AAAAAAAA\n".encode(), "control"),
        ("te\0xt\n\n— alice AAAAAAAA\n".encode(), "control"),
        (b"\xff\n\n", "UTF-8"),
        (b"x" * (MAX_NOTE_BYTES + 1), "at most"),
        (("text\n\n" + "— alice AAAAAAAA\n" * 33).encode(), "33 signatures"),
    ],
)
def test_malformed_notes_are_refused(note, problem):
    with pytest.raises(VerificationError, match=problem):
        parse_note(note, "note")


def test_sixteen_signatures_are_accepted():
    keys = [PrivateKey(f"key{number}", bytes([number]) * 32) for number in range(16)]
    opened = open_note(sign_note("text\n", keys), [key.public() for key in keys], threshold=16, where="note")
    assert len(opened.signatures) == 16


@pytest.mark.parametrize("text", ["no newline", "tab\t\n"])
def test_text_that_no_note_can_carry_is_not_signed(text):
    with pytest.raises(ValueError, match="note needs"):
        sign_note(text, [alice])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused(data):
    try:
        note = parse_note(data, "note")
    except VerificationError:
        return
    assert note.text.endswith("\n")
