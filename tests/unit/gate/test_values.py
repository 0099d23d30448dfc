"""Holding a value means holding all of it, as it looks, in one spelling."""

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.gate.values import canonical, fold, is_plain, occurs, offers, revealed, squeeze, stands_apart, words

some_words = st.text("abcdefghij0123456789", min_size=1, max_size=8)


@given(st.lists(some_words, max_size=5), some_words, st.lists(some_words, max_size=5))
def test_a_word_of_a_text_is_found(before, word, after):
    assert occurs(word, " ".join([*before, word, *after]))


@given(some_words, some_words, st.sampled_from(["", ".", "-", "@", "/", "_", "+", "#"]))
def test_part_of_a_longer_word_is_not_found(inner, outer, joint):
    text = f"{outer}{joint}{inner}"
    assert not occurs(inner, text) or inner == text
    assert not occurs(outer, text) or outer == text


@pytest.mark.parametrize(
    ("value", "text", "found"),
    [
        ("evil.com", "see not-evil.com now", False),
        ("evil.com", "see evil.com.", True),
        ("evil.com", "see evil.com.au.", False),
        ("50", "pay 1500 or 50.5 or 50,5", False),
        ("50", "pay (50), please", True),
        ("bob@x.com", "mail <bob@x.com>, then", True),
        ("bob@x.com", "mail mob.bob@x.com", False),
        ("alice", "pay alice's rent", True),
        ("o", "ask o'brien", False),
        ("brien", "ask o'brien", False),
        ("alice", "ask 'alice' today", True),
        ("a b", "x a b!", True),
        (".env", "open .env now", True),
        ("env", "open .env now", False),
        ("report.txt", "open /secret/report.txt", False),
    ],
)
def test_boundaries(value, text, found):
    assert occurs(fold(value), fold(text)) is found


@pytest.mark.parametrize("value", ["bob\u200b@x.com", "\uff42ob@x.com", "x\u202ey", "a\x07b", "\U000e0041"])
def test_a_value_that_is_not_what_it_looks_like_has_no_canonical_form(value):
    assert not is_plain(value)
    assert canonical(value, "text") is None
    assert canonical(value, "email") is None


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("number", "Pay $1,050.00 and 50, then 3.5 - not 2026-11-21, 12/5 or v2", ["1050", "50", "3.5"]),
        ("number", "Pay 98.70 to GB29 NWBK 6016 1331 9268 19, see https://x.com/7 of 5@x.com", ["98.7"]),
        ("number", "1,5 is written in two ways", []),
        ("email", "Write to Bob@X.com, not to bob@x.com.au.", ["bob@x.com", "bob@x.com.au"]),
        ("url", "Read https://a.io/B, then www.c.de.", ["https://a.io/B", "www.c.de"]),
        ("iban", "From GB29NWBK60161331926819 to DE89 3704 0044 0532 0130 00 please", [
            "GB29NWBK60161331926819", "DE89370400440532013000"]),
        ("number", "Pay BE68 5390 0754 7034 900 euros, invoice 12", ["900", "12"]),
        ("iban", "Pay BE68 5390 0754 7034 900 euros", ["BE68539007547034"]),
        ("iban", "Pay AT61 1904 3002 3457 3201 EUR 50", ["AT611904300234573201"]),
        ("iban", "BE68 5390 0754 7034 NL91 ABNA 0417 1643 00", ["BE68539007547034", "NL91ABNA0417164300"]),
        ("iban", "UK12345678901234567890 or UK12 3456 7890 1234 5678 90", ["UK12345678901234567890"] * 2),
        ("iban", "BE68 5390 0754 7034 033 or BE68 5390 0754 7035 900", ["BE68539007547034", "BE68539007547035900"]),
        ("date", "between 2026-11-21 and 2026-11-30, not 12026-11-21", ["2026-11-21", "2026-11-30"]),
        ("text", "anything at all", []),
    ],
)  # fmt: skip
def test_what_a_text_offers(kind, text, expected):
    assert [canonical(spelling, kind) for spelling in offers(text, kind)] == expected


def test_choices_and_patterns_offer_what_the_policy_names():
    assert list(offers("tell alice and the random channel", "choice", choices=("Alice", "Bob", "random"))) == [
        "Alice", "random",
    ]  # fmt: skip
    pattern = re.compile(r"INV-\d+")
    assert list(offers("settle INV-12 today", "pattern", pattern)) == ["INV-12"]
    assert canonical("INV-12", "pattern", pattern) == "INV-12"
    assert canonical("INV-12; INV-13", "pattern", pattern) is None
    assert list(offers("XINV-12, INV-12b, INV-12_ and INV-34.", "pattern", pattern)) == ["INV-34"]
    assert list(offers("a b", "pattern", re.compile(r"\d*"))) == []


def test_an_account_and_the_word_after_it_are_no_account():
    assert canonical("BE68 5390 0754 7034", "iban") == "BE68539007547034"
    assert canonical("BE68 5390 0754 7034 900", "iban") is None


@pytest.mark.parametrize(("one", "other"), [(10**30 + 1, 10**30 + 2), (f"0.{1:030}", f"0.{2:030}")])
def test_numbers_are_compared_to_the_last_digit(one, other):
    assert canonical(one, "number") != canonical(other, "number")


@pytest.mark.parametrize(
    ("how", "text", "squeezed"),
    [
        ("text", "Wire the\n deposit\u200b", "wirethedeposit"),
        ("text", "e\ufe0fvil\uff0ecom", "evil.com"),
        ("number", "1.050,00 or 1,050.25 or 1\u2019050", "1050.00or1050.25or1050"),
        ("iban", "DE89-3704\n0044", "de8937040044"),
        ("words", "**Wire** the\n> depo\u200bsit", "wirethedeposit"),
    ],
)
def test_squeezing_leaves_what_makes_a_value(how, text, squeezed):
    assert squeeze(text, how) == squeezed


@given(some_words, st.text("=#/:-_.\u200b ", max_size=3), st.text("=#/:-_.\u200b ", max_size=3))
def test_a_value_stands_apart_from_all_but_letters_and_digits(value, before, after):
    assert stands_apart(value, f"{before}{value}{after}")
    assert not stands_apart(value, f"a{value}{after}")
    assert not stands_apart(value, f"{before}{value}1")
    assert not stands_apart("", before)


@given(st.text(max_size=60), st.sampled_from(["number", "email", "url", "iban", "date"]))
def test_whatever_is_offered_is_of_its_kind(text, kind):
    for spelling in offers(text, kind):
        assert canonical(spelling, kind) is not None or not is_plain(spelling)


@given(st.integers(-(10**9), 10**9))
def test_numbers_are_compared_by_value(number):
    forms = {canonical(value, "number") for value in (number, float(number), str(number), f"{number}.00")}
    assert forms == {str(number)}


@pytest.mark.parametrize("value", [True, None, "1e5", "NaN", float("inf"), float("nan"), "١٢", "1_000", "9" * 50, ""])
def test_what_is_no_plain_number_has_no_form(value):
    assert canonical(value, "number") is None


@pytest.mark.parametrize(
    ("value", "kind"), [("bob@x.com, eve@y.com", "email"), ("not a link", "url"), ("x" * 10_001, "text")]
)
def test_what_is_not_of_the_kind_has_no_form(value, kind):
    assert canonical(value, kind) is None


def test_words_are_letters_and_digits_whatever_stands_between_them():
    text = "**Don\u2019t** send_it,\n> \u0939\u093f\u0928\u094d\u0926\u0940 follow-up!"
    assert words(text) == ["dont", "send", "it", "\u0939\u093f\u0928\u094d\u0926\u0940", "follow", "up"]


@given(st.text(max_size=60))
def test_what_is_short_of_marks_is_revealed_as_it_always_was(text):
    hidden = [character for character in unicodedata.normalize("NFKC", text) if unicodedata.category(character) != "Cf"]
    assert squeeze(revealed(text)) == squeeze("".join(hidden))


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0f73", "\u0344\u0316"])
def test_a_long_run_of_marks_is_cut_and_no_value_has_one(marks):
    started = time.process_time()
    assert len(revealed("evil" + marks * 300_000 + ".com")) < 1_000
    assert not is_plain("evil" + marks * 300_000)
    assert time.process_time() - started < 3
    assert is_plain("e" + "\u0316" * 64)
