"""Which numbers in a text name something, whatever stands between their groups."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memory_audit.gate.numbers import digits, is_years, numbers, with_plain_joints
from memory_audit.gate.parts import parts

JOINTS = [
    " ", "  ", "\xa0", "\u2009", "\u202f", "\t", "\n", " \n ", "-", " - ", "\u2010", "\u2011", "\u2014", "\u2212",
    ".", " . ", "/", " / ", "\\", "\u2044", "_", "\xb7", " \xb7 ", "\u2022", "'", "\u2019", "(", ") ", " (", "+", " + ",
    ",", ", ", ".-.", "\U0001f539", "\u20e3",
]  # fmt: skip


def names_nothing(written: str) -> bool:
    """Tell whether a text is an amount below a million or years in a row, which are no numbers by intent."""
    plain = with_plain_joints(written)
    return is_years(plain) or re.fullmatch(r"\d{2,3}[,.' ]?\d{3}[.,]\d\d", plain) is not None


@given(
    st.lists(st.text("0123456789", min_size=1, max_size=5), min_size=3, max_size=8),
    st.lists(st.sampled_from(JOINTS), min_size=8, max_size=8),
    st.sampled_from(["Pay to {} today", "No.{}", "({})", "x{}x", "{}", "\u2192{}!"]),
)
def test_a_number_is_seen_whatever_stands_between_its_groups(groups: list[str], joints: list[str], where: str) -> None:
    written = groups[0] + "".join(joint + group for joint, group in zip(joints, groups[1:], strict=False))
    assume(len("".join(groups)) >= 7 and not names_nothing(written))
    found = list(numbers(where.format(written)))
    assert {number.row for number in found} == {"".join(groups)}
    assert all(number.form in number.row for number in found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4111 1111 1111 1111", ["4111111111111111"]),
        ("+49 (0) 30 / 12 34 56", ["49030123456"]),
        ("\u0664\u0661\u0661\u0661 \u0661\u0661\u0661", ["4111111"]),
        ("call 555 1234 (2 people)", ["5551234"]),
        ("555 1234 - 24 hours", ["5551234"]),
        ("order 123456, 20 units", ["123456"]),
        ("1234567 and 7654321, 3 rooms", ["1234567", "7654321"]),
        ("(202) 555-1234, (202) 555-4321", ["2025551234", "2025554321"]),
        ("1, 2, 12345678, 3, 4", ["12345678"]),
        ("12 people, 3 rooms; 4 nights for 1200", []),
        ("12%, 15%, 18%, 20%", []),
        ("$1,200 or $3,400 or $5,600", []),
        ("#1201 #1202 #1203", []),
        ("10:30-11:30, 12:15 and 2023/2024, 2019-2023", []),
        ("12,345.67 in all", []),
    ],
)
def test_which_numbers_a_text_has(text: str, found: list[str]) -> None:
    assert [number.form for number in numbers(text)] == found


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("10, 20, 30, 40", True), ("1,500, 1,200", True), ("2,100,000", True), ("98.6 \u2013 99.96", True),
        ("1.6 / 7.4 / 30.5", True), ("2503.03704", True), ("1401\u20131500", True), ("1234, 5678, 9012", True),
        ("1234,5678,9012", False), ("1234 5678 9012", False), ("1234.5678.9012", False), ("12/34/56/78", False),
        ("030 1234567", False), ("1234.5678-9012", False),
    ],
)  # fmt: skip
def test_what_quantities_are_written_like_may_be_several(text: str, listed: bool) -> None:  # noqa: FBT001
    assert [number.listed for number in numbers(text)][-1:] == [listed]


@pytest.mark.parametrize(
    "text",
    [
        "on 2024-05-20, 3 rooms, 12 people", "2024-05-20 10:00-11:00", "from 2024-05-20 - 2024-05-25",
        "12.05.2024, 3 people", "5/12/2024 10:30", "May 20, 2024, 12 rooms", "2024-05-20/2024-05-25",
    ],
)  # fmt: skip
def test_a_date_is_no_part_of_a_number(text: str) -> None:
    assert parts(text, "prose") == []


@pytest.mark.parametrize("text", ["4111-11-11 11:11", "9876-54-32", "1234-2024-05-20", "99.99.2024"])
def test_what_is_no_day_is_no_date(text: str) -> None:
    assert parts(text, "prose") != []


@given(st.text(max_size=60))
def test_a_text_with_plain_joints_is_as_long_as_it_was(text: str) -> None:
    assert len(with_plain_joints(text)) == len(text)
    assert digits(text).isascii()
