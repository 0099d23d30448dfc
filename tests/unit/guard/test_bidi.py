"""Text as it is displayed where it overrides its direction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.guard.text.bidi import displayed

RLO, LRO, RLE, LRE, PDF, LRI, RLI, PDI = (
    "\u202e", "\u202d", "\u202b", "\u202a", "\u202c", "\u2066", "\u2067", "\u2069"
)  # fmt: skip
CONTROLS = f"{RLO}{LRO}{RLE}{LRE}{PDF}{LRI}{RLI}\u2068{PDI}"
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters=f"{CONTROLS}\n\r\x1c\x1d\x1e\x85\u2029"))


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("plain", "plain"),
        (f"call it {RLO}lanif{PDF} now", "call it final now"),
        (f"{RLO}dne on", "no end"),  # without an end it lasts to the end of the paragraph
        (f"{RLO}eno{PDF}\n{RLO}owt\nthree", "one\ntwo\nthree"),
        (f"{LRO}as it is{PDF}", f"{LRO}as it is{PDF}"),  # nothing runs the other way: untouched
        # What ICU 72 makes of these:
        (f"{RLO}d {LRO}bc{PDF} a", "a bc d"),
        (f"{RLO}d{RLO}cb{PDF}a", "abcd"),
        (f"{RLE}ab{RLO}dc{PDF}{PDF}{PDF}e", "abcde"),
        (f"{RLO}{LRI}{PDF}{PDI}on", "no"),  # the end inside an isolate ends nothing outside of it
        (f"{RLO}{RLI}{PDF}{PDI}on{PDF} more", "no more"),
        (f"ad{LRI}{RLO}febd{PDI}{LRI}{LRO}ec{PDI}a", "addbefeca"),
        (f"{RLO * 62}{LRO}ab", "ab"),
        (f"{RLO * 63}{LRO}ab", "ba"),  # deeper than the standard goes: the last override has no effect
    ],
)
def test_overrides_are_followed_as_the_standard_says(stored, shown):
    assert displayed(stored) == shown


@given(PLAIN, PLAIN, PLAIN)
def test_what_is_written_backwards_under_an_override_reads_forwards(before, hidden, after):
    assert displayed(f"{before}{RLO}{hidden[::-1]}{PDF}{after}") == f"{before}{hidden}{after}"


@given(st.text(st.sampled_from(f"{CONTROLS}abc\n")))
def test_no_letter_is_lost_or_made(text):
    assert sorted(filter(str.isalpha, displayed(text))) == sorted(filter(str.isalpha, text))


def test_what_is_nested_deeper_than_the_standard_goes_costs_no_more():
    assert displayed(RLO * 200_000 + "cba" + PDF * 200_000 + "d") == "abcd"
    assert len(displayed((f"{RLO}{LRO}" * 62 + "a" + PDF * 124 + "b") * 500)) == 1_000
