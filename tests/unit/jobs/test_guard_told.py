"""Standard error gets what an operator needs, and no more than it has room for."""

from __future__ import annotations

import contextlib
import io
import time
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_audit.jobs.guard import told as guard_told
from memory_audit.jobs.guard.told import CALM_S, MOST_CHARS, Told

KINDS = ("stale", "pin")


@pytest.fixture
def clock(monkeypatch):
    """Seconds, to be set."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def told(capsys):
    return capsys.readouterr().err.splitlines()


def test_of_a_kind_nothing_is_told_twice_in_a_row_and_another_line_once_a_minute(clock, capsys):
    tell = Told()
    for clock[0], line in ((0, "a"), (1, "a"), (2, "b"), (CALM_S, "b"), (CALM_S + 1, "a"), (3 * CALM_S, "b")):
        tell("pin", line)
    tell("stale", "a")
    assert told(capsys) == ["memaudit: a", "memaudit: b", "memaudit: a"]


def test_what_ended_and_comes_again_is_told_again(clock, capsys):
    tell = Told()
    tell("pin", "a")
    tell.ended("pin")
    tell("pin", "a")
    assert told(capsys) == ["memaudit: a"] * 2


def test_the_last_line_of_a_kind_says_so(clock, capsys):
    tell = Told()
    for number in range(1_000):
        clock[0] += CALM_S
        tell("pin", f"{number} " + "x" * 500)
    lines = told(capsys)
    assert 100 < len(lines) < 150
    assert [line.endswith(" (nothing more of this kind is told)") for line in lines] == [False] * (len(lines) - 1) + [
        True
    ]
    tell("stale", "another kind")
    assert told(capsys) == ["memaudit: another kind"]


@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.text(max_size=40), st.integers(1, 100), st.floats(0, 200), st.booleans()),
        max_size=30,
    )
)
def test_what_is_told_is_bounded_whatever_happens(steps):
    now, written = 0.0, io.StringIO()
    with (
        patch.object(guard_told, "MOST_BYTES", 2_000),
        patch.object(time, "monotonic", lambda: now),
        contextlib.redirect_stderr(written),
    ):
        tell = Told()
        for kind, text, times, seconds, ended in steps:
            for number in range(times):
                now += seconds
                tell(kind, f"{number} {text * 30}")
                if ended:
                    tell.ended(kind)
    shown = written.getvalue()
    longest = 4 * MOST_CHARS + 20 * 100  # four bytes a character, and labels of what cannot be seen
    assert len(shown.encode(errors="replace")) <= len(KINDS) * (2_000 + longest)
    assert all(line.startswith("memaudit: ") for line in shown.splitlines())
