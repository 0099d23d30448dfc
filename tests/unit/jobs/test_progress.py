"""Progress as people read it: bars on a terminal, plain lines in a log, silence when asked."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from jobs.progress import LINE_SECONDS, Reporter


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def plain(**options):  # noqa: ANN003
    file = io.StringIO()
    return Reporter(Console(file=file, width=100), **options), file


def test_a_short_stage_says_nothing_in_a_log(clock):
    reporter, file = plain()
    with reporter.stage("replaying", 10) as stage:
        clock[0] += 1
        stage.advance(10)
    assert file.getvalue() == ""


def test_a_long_stage_says_how_far_it_is_and_how_long_it_takes(clock):
    reporter, file = plain()
    with reporter.stage("replaying", 10) as stage:
        for _ in range(10):
            clock[0] += LINE_SECONDS / 2
            stage.advance()
    lines = file.getvalue().splitlines()
    assert lines[0] == "replaying: 2/10, 10 s, about 40 s left"
    assert lines[-1] == "replaying: 10 done in 50.0 s"


def test_a_stage_without_a_total_counts(clock):
    reporter, file = plain()
    with reporter.stage("reading") as stage:
        clock[0] += LINE_SECONDS + 1
        stage.advance(3)
    assert file.getvalue().splitlines()[0] == "reading: 3"


def test_quiet_is_quiet(clock):
    reporter, file = plain(quiet=True)
    reporter.say("hello")
    with reporter.stage("replaying", 10) as stage:
        clock[0] += 100
        stage.advance()
    assert file.getvalue() == ""


def test_text_is_never_taken_for_markup():
    reporter, file = plain()
    reporter.say("[red]tenant[/red]")
    assert file.getvalue() == "[red]tenant[/red]\n"


def test_a_terminal_gets_a_bar_with_counts():
    file = io.StringIO()
    reporter = Reporter(Console(file=file, width=120, force_terminal=True, no_color=True))
    with reporter.stage("replaying events", 4) as stage:
        stage.advance(4)
    assert "replaying events" in file.getvalue()
    assert "4/4" in file.getvalue()


def test_a_failing_stage_lets_its_error_through():
    reporter, _ = plain()
    with pytest.raises(KeyError), reporter.stage("replaying", 1):
        raise KeyError
