"""Hidden characters become labels, markup becomes text, and length is bounded."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_audit.report.untrusted import MAX_LABELS, TEXT_CHARS, as_html, as_line, runs
from tests.unit.report.hostile import ANSI, BIDI, LONG, ZERO_WIDTH

any_text = st.text(st.characters(), max_size=200)  # lone surrogates included


@settings(deadline=None)
@given(any_text)
def test_a_line_holds_no_control_format_or_surrogate_character(text):
    assert not {unicodedata.category(character) for character in as_line(text)} & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@settings(deadline=None)
@given(any_text)
def test_only_line_breaks_and_tabs_survive_in_html(text):
    kept = {c for c in as_html(text) if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}}
    assert kept <= {"\n", "\t"}


@settings(deadline=None)
@given(any_text, st.integers(0, 50))
def test_no_more_than_the_limit_is_shown(text, limit):
    shown = list(runs(text, limit))
    letters = sum(len(piece) for piece, hidden in shown if not hidden)
    assert letters <= limit
    assert ("more characters" in as_line(text, limit)) == (len(text) > limit)


@settings(deadline=None)
@given(st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="\u3164\u115f\u1160\uffa0\u2800")))
def test_plain_letters_pass_unchanged(text):
    assert as_line(text, 500) == text


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (BIDI, "U+202E"),
        (ANSI, "U+001B"),
        (ANSI, "U+009B"),
        (ZERO_WIDTH, "U+200B"),
        (ZERO_WIDTH, "U+FEFF"),
        (ZERO_WIDTH, "U+E0041"),
        (ZERO_WIDTH, "U+FE0F"),
        (ZERO_WIDTH, "U+3164"),
        ("\ud800", "U+D800"),
        ("a\u2028b", "U+2028"),
    ],
)
def test_what_cannot_be_seen_is_named(text, label):
    assert f"<{label}>" in as_line(text)
    assert f'<span class="u">{label}</span>' in as_html(text)


def test_markup_is_escaped_also_between_labels():
    assert as_html("<b>\u202e'\"&") == '&lt;b&gt;<span class="u">U+202E</span>&#39;&#34;&amp;'


def test_piles_of_combining_marks_are_broken_up():
    assert as_line("e\u0301") == "e\u0301"
    assert as_line("e" + "\u0301" * 6) == "e\u0301\u0301\u0301<U+0301 × 3>"


def test_a_long_text_says_what_is_left_out():
    assert as_html(LONG).endswith(f'<span class="u">… {60_000 - TEXT_CHARS:,} more characters</span>')
    assert as_line(LONG) == "A" * 80 + " … 59,920 more characters"


def test_a_line_has_no_line_break():
    assert as_line("a\nb\r\nc\rd") == "a b c<U+000D>d"


def test_a_run_of_one_hidden_character_is_one_label():
    assert as_html("a" + "\u200b" * 3_000 + "b\u200bc") == (
        'a<span class="u">U+200B × 3,000</span>b<span class="u">U+200B</span>c'
    )


def test_labels_are_bounded_and_the_rest_is_counted():
    shown = list(runs("a\u200bb\u200c" * 1_000, 4_000))
    assert sum(hidden for _, hidden in shown) == MAX_LABELS + 1
    assert shown[-1] == (f"… {2_000 - MAX_LABELS:,} more hidden characters", True)
    assert sum(len(piece) for piece, hidden in shown if not hidden) == 2_000
