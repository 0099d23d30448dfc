"""Progress on every stage over two seconds: a bar with count and ETA on a terminal, plain lines elsewhere.

Work tells what it does with `stage` and `say`. Who hears it is whoever opened a `Reporter` around it: a command, or a
test. Where nobody did, nothing is shown.
"""

from __future__ import annotations

import datetime as dt
import time
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.progress import Task

__all__ = ["Reporter", "Stage", "say", "stage", "steps"]

LINE_SECONDS = 10.0
"""Distance of plain lines: readable in a job log, and enough to see that it lives."""

WONDER_SECONDS = 2.0
"""A stage that took longer tells its end in a log."""

LEAST_DONE = 3
LEAST_SHARE = 0.1
"""Fewer completions are no ground for an estimate."""


class Stage:
    """One stage under way; the caller says how far it is.

    Args:
        name: What is done.
        total: How much of it; None where that is not known.
        bar: Shows it on a terminal; None for plain lines.
        console: Where those go; None says nothing.
        heard: Is called with each stage that begins or goes on.
    """

    def __init__(
        self,
        name: str,
        total: int | None,
        bar: Progress | None,
        console: Console | None,
        heard: Callable[[Stage], None] | None = None,
    ) -> None:
        self.name, self.total, self._console, self._heard = name, total, console, heard
        self._bar = bar
        self._task = bar.add_task(name, total=total) if bar is not None else None
        self.done = 0
        self._first: tuple[int, float] | None = None
        """How much came first, and when."""

        self._started = self._said = time.monotonic()
        self._tell()

    def advance(self, count: int = 1) -> None:
        """Say that `count` more are done."""
        self.done += count
        now = time.monotonic()
        if self._first is None and self.done:
            self._first = (self.done, now)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done)
        elif now - self._said >= LINE_SECONDS and self.done != self.total:  # `finish` tells the end
            self._said = now
            self._print(self._line(now - self._started))
        self._tell()

    def _line(self, spent_s: float) -> str:
        if not self.total:
            return f"{self.name}: {self.done}"
        spent = f", {spent_s:.0f} s" if self.done else ""
        left_s = self.left_s()
        left = "" if left_s is None else f", about {left_s:.0f} s left"
        return f"{self.name}: {self.done}/{self.total}{spent}{left}"

    def left_s(self) -> float | None:
        """Estimate what is left by the pace since the first completion; None before there is ground for it.

        The first is left out, as it bears the start-up; the pace counts once it was watched for as long as that took.
        """
        if not self.total or self._first is None or self.done < max(LEAST_DONE, LEAST_SHARE * self.total):
            return None
        count, came = self._first
        watched = time.monotonic() - came
        if self.done == count or watched < came - self._started:
            return None
        return watched / (self.done - count) * (self.total - self.done)

    def spent_s(self) -> float:
        """Return how long the stage has been under way, seconds."""
        return time.monotonic() - self._started

    def _tell(self) -> None:
        if self._heard is not None:
            self._heard(self)

    def finish(self) -> None:
        """Close the stage; a plain line only where it took long enough to wonder."""
        spent = time.monotonic() - self._started
        if self._bar is None and spent > WONDER_SECONDS:
            self._print(f"{self.name}: {self.done} done in {spent:.1f} s")

    def _print(self, line: str) -> None:
        if self._console is not None:
            self._console.print(line, markup=False, highlight=False)


class _LeftColumn(ProgressColumn):
    """What is left by the stage's own estimate; empty while there is no ground for one."""

    stage: Stage | None = None

    def render(self, task: Task) -> Text:
        """See `rich.progress.ProgressColumn`."""
        left_s = None if self.stage is None or task.finished else self.stage.left_s()
        return Text("" if left_s is None else f"ETA {dt.timedelta(seconds=round(left_s))}", style="progress.remaining")


class Reporter:
    """Opens stages on one console; as a context, it hears what `stage` and `say` tell inside.

    Args:
        console: None, or `quiet`, shows nothing.
        quiet: Show nothing.
        heard: Is called with each stage that begins or goes on, whatever is shown.
    """

    def __init__(
        self, console: Console | None, *, quiet: bool = False, heard: Callable[[Stage], None] | None = None
    ) -> None:
        self._console = None if quiet else console
        self._heard = heard
        self._before: list[Token[Reporter]] = []

    def __enter__(self) -> Self:
        self._before.append(_listening.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _listening.reset(self._before.pop())

    def say(self, line: str) -> None:
        """Print one plain line."""
        if self._console is not None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, announced: bool = False) -> Iterator[Stage]:
        """Show one stage until the block ends.

        Args:
            name: What is done.
            total: How much of it; None where that is not known.
            announced: Nothing may advance for long, so a log names the stage when it begins.
        """
        if self._console is None or not self._console.is_terminal:
            if announced:  # a terminal shows its bar at once
                self.say(f"{name} …")
            plain = Stage(name, total, None, self._console, self._heard)
            yield plain
            plain.finish()
            return
        left = _LeftColumn()
        columns = (
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            left,
        )  # fmt: skip
        with Progress(*columns, console=self._console, transient=False) as bar:
            left.stage = Stage(name, total, bar, self._console, self._heard)
            yield left.stage

    @contextmanager
    def steps(self) -> Iterator[Callable[[str, int, int], None]]:
        """Give a callback (what, done, total) that shows each new `what` as a stage of its own."""
        name, before = "", 0
        shown: Stage | None = None
        with ExitStack() as opened:

            def step(what: str, done: int, total: int) -> None:
                nonlocal name, before, shown
                if shown is None or what != name:
                    opened.close()
                    name, before = what, 0
                    shown = opened.enter_context(self.stage(what, total))
                shown.advance(done - before)
                before = done

            yield step


_listening: ContextVar[Reporter] = ContextVar("reporter", default=Reporter(None))  # noqa: B039 - it shows nothing


def say(line: str) -> None:
    """Tell whoever listens one plain line."""
    _listening.get().say(line)


def stage(name: str, total: int | None = None, *, announced: bool = False) -> AbstractContextManager[Stage]:
    """Tell whoever listens that a stage begins; it ends with the block. See `Reporter.stage`."""
    return _listening.get().stage(name, total, announced=announced)


def steps() -> AbstractContextManager[Callable[[str, int, int], None]]:
    """Give a callback that tells whoever listens one stage after the other. See `Reporter.steps`."""
    return _listening.get().steps()
