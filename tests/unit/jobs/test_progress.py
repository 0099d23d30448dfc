"""Progress as people read it: bars on a terminal, plain lines in a log, silence when asked."""

from __future__ import annotations

import asyncio
import io
import time
from unittest.mock import Mock

import pytest
from rich.console import Console

from memory_audit.jobs.watching.progress import LINE_SECONDS, Reporter, _LeftColumn, say, stage, steps


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
    assert lines[:2] == ["replaying: 2/10, 10 s", "replaying: 4/10, 20 s, about 30 s left"]
    assert not [line for line in lines if "10/10" in line]
    assert lines[-1] == "replaying: 10 done in 50.0 s"


def lines_of(clock, total, advances):
    """Advance by (seconds later, how many) and return what was said on the way."""
    reporter, file = plain()
    with reporter.stage("replaying", total) as stage:
        for later, count in advances:
            clock[0] += later
            stage.advance(count)
    return file.getvalue().splitlines()


def test_no_end_is_foretold_from_a_start_up(clock):
    lines = lines_of(clock, 16, [(89, 1), (1, 1), (10, 5), (1, 9)])
    assert lines == ["replaying: 1/16, 89 s", "replaying: 7/16, 100 s", "replaying: 16 done in 101.0 s"]


def test_no_end_is_foretold_from_less_than_a_tenth(clock):
    lines = lines_of(clock, 100, [(11, 1)] * 10)
    assert lines[8] == "replaying: 9/100, 99 s"
    assert lines[9] == "replaying: 10/100, 110 s, about 990 s left"


def test_the_first_completion_does_not_count_into_the_pace(clock):
    lines = lines_of(clock, 20, [(50, 2), *[(10, 2)] * 9])
    assert lines[4] == "replaying: 10/20, 90 s"
    assert lines[5] == "replaying: 12/20, 100 s, about 40 s left"


def test_a_stage_without_a_total_counts(clock):
    reporter, file = plain()
    with reporter.stage("reading") as stage:
        clock[0] += LINE_SECONDS + 1
        stage.advance(3)
    assert file.getvalue().splitlines()[0] == "reading: 3"


def test_a_stage_that_may_not_advance_for_long_is_named_in_a_log_when_it_begins(clock):
    reporter, file = plain()
    with reporter.stage("starting the backbone", 1, announced=True) as stage:
        assert file.getvalue() == "starting the backbone …\n"
        clock[0] += 3
        stage.advance()
    assert file.getvalue().splitlines()[1:] == ["starting the backbone: 1 done in 3.0 s"]
    reporter, file = plain(quiet=True)
    with reporter.stage("starting the backbone", 1, announced=True):
        assert file.getvalue() == ""


def test_what_is_looked_at_now_and_then_is_done_when_something_else_begins(clock):
    reporter, file = plain()
    with reporter.steps() as step:
        for what, done, total in (("asked", 0, 14), ("asked", 0, 6), ("checked", 1, 4), ("checked", 0, 4)):
            step(what, done, total)  # the last is begun again: a task was lost
            clock[0] += 8
    told = ["asked: 14 done in 8.0 s", "asked: 6 done in 8.0 s", "checked: 1 done in 8.0 s", "checked: 0 done in 8.0 s"]
    assert file.getvalue().splitlines() == told


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


def test_a_terminal_shows_an_estimate_only_where_there_is_ground_for_one(clock):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Reporter(console).stage("replaying", 20) as stage:
        column, task = _LeftColumn(), Mock(finished=False)
        column.stage = stage
        for _ in range(2):
            clock[0] += 10
            stage.advance()
        assert not column.render(task).plain
        for _ in range(8):
            clock[0] += 10
            stage.advance()
        assert column.render(task).plain == "ETA 0:01:40"


def test_work_is_heard_by_whoever_opened_a_reporter_around_it_and_by_nobody_else():
    (outer, told), (inner, told_inside) = plain(), plain()
    say("before")
    with outer:
        say("one")
        with inner, stage("reading", 2, announced=True) as under_way:
            under_way.advance(2)
        with pytest.raises(KeyError), inner:
            raise KeyError
        say("two")
    with stage("afterwards", announced=True), steps() as step:
        step("unheard", 1, 1)
    assert told.getvalue() == "one\ntwo\n"
    assert told_inside.getvalue() == "reading …\n"


async def test_what_a_coroutine_tells_is_heard_where_it_was_started():
    reporter, told = plain()

    async def work():
        say("inside")

    with reporter:
        await asyncio.gather(work(), asyncio.create_task(work()))
    assert told.getvalue() == "inside\ninside\n"
