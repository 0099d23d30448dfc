"""Text comes out in form NFC, and what would take a normaliser long is refused before it starts."""

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.errors import EntryError
from memory_audit.text.nfc import MAX_MARKS, few_marks, nfc

SLOW = ["\u0301\u0316", "\u0f73", "\u0f75\u0f72", "\u0344\u0316", "\u0301\uff9e"]
"""Runs that take quadratic time: of marks, and of what only becomes marks when decomposed, by NFC or by NFKC."""


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("", ""), ("plain", "plain"), ("e\u0301", "\u00e9"), ("\u212b", "\u00c5"), ("\u1112\u1161\u11ab", "\ud55c"),
        ("q\u0307\u0323", "q\u0323\u0307"), ("\u0301 first", "\u0301 first"), ("\ud800e\u0301", "\ud800\u00e9"),
    ],
)  # fmt: skip
def test_a_text_comes_out_in_form_nfc(text, normal):
    assert nfc(text, "f") == normal


@pytest.mark.parametrize("marks", SLOW)
def test_what_takes_long_is_refused_at_once(marks):
    started = time.process_time()
    with pytest.raises(EntryError, match=r"^f: response has more than 64 combining marks in a row at character 3$"):
        nfc("é a" + marks * 200_000, "f: response")
    assert time.process_time() - started < 1


@pytest.mark.parametrize("mark", ["\u0301", "\u0f73", "\u0344"])
def test_the_bound_is_on_marks_in_a_row_and_not_on_marks(mark):
    run = mark * MAX_MARKS
    assert nfc(f"a{run}" * 50, "f") == unicodedata.normalize("NFC", f"a{run}" * 50)
    with pytest.raises(EntryError, match=r"at character 1$"):
        nfc(f"a{run}{mark}", "f")


CHARACTERS = ["a", "\u00e9", "\u0301", "\u0316", "\u0f73", "\u0f81", "\u0344", "\uff9f", "\u3099"]


@given(st.lists(st.tuples(st.sampled_from(CHARACTERS), st.integers(1, 40))))
def test_what_is_let_through_has_only_short_runs_when_decomposed(repeated):
    text = "".join(character * times for character, times in repeated)
    try:
        nfc(text, "f")
    except EntryError:
        return
    classes = [unicodedata.combining(character) != 0 for character in unicodedata.normalize("NFKD", text)]
    longest = max((len(run) for run in "".join("x" if mark else " " for mark in classes).split()), default=0)
    assert longest <= 2 * MAX_MARKS + 1  # a mark becomes two at most, and the letter before it brings one


@given(st.lists(st.tuples(st.sampled_from(CHARACTERS), st.integers(1, 90))))
def test_of_every_run_the_first_marks_are_kept_and_nothing_else_is_lost(repeated):
    text = "".join(character * times for character, times in repeated)
    letters = "a\u00e9"
    assert few_marks(text) == "".join(
        "".join(run) if run[0] in letters else "".join(run)[:MAX_MARKS]
        for run in re.findall(f"[{letters}]+|[^{letters}]+", text)
    )


@given(st.text(max_size=MAX_MARKS))
def test_what_has_no_long_run_stays_as_it_is(text):
    assert few_marks(text) == text


def test_a_large_text_of_other_scripts_is_normalised_fast():
    started = time.process_time()
    nfc("漢字とひらがな、кириллица, हिन्दी " * 40_000, "f")
    assert time.process_time() - started < 2
