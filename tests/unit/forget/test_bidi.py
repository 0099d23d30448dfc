"""Text as it is displayed where it overrides its direction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.forget.bidi import displayed

RLO, LRO, RLE, PDF = "\u202e", "\u202d", "\u202b", "\u202c"
PLAIN = st.text(
    st.characters(codec="utf-8", exclude_characters=f"{RLO}{LRO}{RLE}\u202a{PDF}\n\r\x1c\x1d\x1e\x85\u2029")
)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("plain", "plain"),
        (f"call it {RLO}lanif{PDF} now", "call it final now"),
        (f"{RLO}dne on", "no end"),  # without an end it lasts to the end of the paragraph
        (f"{RLO}eno{PDF}\n{RLO}owt\nthree", "one\ntwo\nthree"),
        (f"{RLO}d {LRO}bc{PDF} a", "a bc d"),
        (f"{RLO}d{RLO}cb{PDF}a", "abcd"),
        (f"{RLE}ab{RLO}dc{PDF}{PDF}{PDF}e", "abcde"),
        (f"{LRO}as it is{PDF}", f"{LRO}as it is{PDF}"),  # nothing runs the other way: untouched
    ],
)
def test_overrides_are_followed_as_the_standard_says(stored, shown):
    assert displayed(stored) == shown


@given(PLAIN, PLAIN, PLAIN)
def test_what_is_written_backwards_under_an_override_reads_forwards(before, hidden, after):
    assert displayed(f"{before}{RLO}{hidden[::-1]}{PDF}{after}") == f"{before}{hidden}{after}"


@given(st.text(st.sampled_from(f"{RLO}{LRO}{RLE}{PDF}abc\n")))
def test_no_letter_is_lost_or_made(text):
    assert sorted(filter(str.isalpha, displayed(text))) == sorted(filter(str.isalpha, text))


def test_runs_within_runs_are_followed_to_the_standards_depth_and_cost_no_more_beyond():
    assert displayed(RLO * 125 + "cba" + PDF * 125 + "d") == "abcd"
    assert displayed(RLO * 200_000 + "cba" + PDF * 199_999 + f"{PDF}d") == "abcd"
