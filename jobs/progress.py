"""Progress on every stage over two seconds: a bar with count and ETA on a terminal, plain lines elsewhere."""

from __future__ import annotations

import datetime as dt
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

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

    from rich.console import Console
    from rich.progress import Task

__all__ = ["Reporter", "Stage"]

LINE_SECONDS = 10.0
"""Distance of plain lines: readable in a job log, and enough to see that it lives."""


LEAST_DONE = 3
LEAST_SHARE = 0.1
"""Fewer completions are no ground for an estimate."""


class Stage:
    """One stage under way; the caller says how far it is."""

    def __init__(self, name: str, total: int | None, bar: Progress | None, console: Console) -> None:
        self._name, self._total, self._console = name, total, console
        self._bar = bar
        self._task = bar.add_task(name, total=total) if bar is not None else None
        self._done = 0
        self._first: tuple[int, float] | None = None
        """How much came first, and when."""

        self._started = self._said = time.monotonic()

    def advance(self, count: int = 1) -> None:
        """Say that `count` more are done."""
        self._done += count
        if self._first is None and self._done:
            self._first = (self._done, time.monotonic())
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)
        elif time.monotonic() - self._said >= LINE_SECONDS and self._done != self._total:  # `finish` tells the end
            self._say()

    def _say(self) -> None:
        self._said = time.monotonic()
        spent = self._said - self._started
        line = f"{self._name}: {self._done}"
        if self._total:
            line += f"/{self._total}"
            if self._done:
                line += f", {spent:.0f} s"
            if (left_s := self.left_s()) is not None:
                line += f", about {left_s:.0f} s left"
        self._console.print(line, markup=False, highlight=False)

    def left_s(self) -> float | None:
        """Estimate what is left by the pace since the first completion; None before there is ground for it.

        The first is left out, as it bears the start-up; the pace counts once it was watched for as long as that took.
        """
        if not self._total or self._first is None or self._done < max(LEAST_DONE, LEAST_SHARE * self._total):
            return None
        count, came = self._first
        watched = time.monotonic() - came
        if self._done == count or watched < came - self._started:
            return None
        return watched / (self._done - count) * (self._total - self._done)

    def finish(self) -> None:
        """Close the stage; a plain line only where it took long enough to wonder."""
        if self._bar is None and time.monotonic() - self._started > 2.0:  # noqa: PLR2004 - the stage rule above
            spent = time.monotonic() - self._started
            self._console.print(f"{self._name}: {self._done} done in {spent:.1f} s", markup=False, highlight=False)


class _LeftColumn(ProgressColumn):
    """What is left by the stage's own estimate; empty while there is no ground for one."""

    stage: Stage | None = None

    def render(self, task: Task) -> Text:
        """See `rich.progress.ProgressColumn`."""
        left_s = None if self.stage is None or task.finished else self.stage.left_s()
        return Text("" if left_s is None else f"ETA {dt.timedelta(seconds=round(left_s))}", style="progress.remaining")


class Reporter:
    """Opens stages on one console."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet

    def say(self, line: str) -> None:
        """Print one plain line."""
        if not self._quiet:
            self._console.print(line, markup=False, highlight=False)

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, announced: bool = False) -> Iterator[Stage]:
        """Show one stage until the block ends.

        Args:
            name: What is done.
            total: How much of it; None where that is not known.
            announced: Nothing may advance for long, so a log names the stage when it begins.
        """
        if announced and not self._console.is_terminal:  # a terminal shows its bar at once
            self.say(f"{name} …")
        if self._quiet or not self._console.is_terminal:
            stage = Stage(name, total, None, self._console) if not self._quiet else _Silent(name, self._console)
            yield stage
            stage.finish()
            return
        left = _LeftColumn()
        columns = (
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            left,
        )  # fmt: skip
        with Progress(*columns, console=self._console, transient=False) as bar:
            left.stage = Stage(name, total, bar, self._console)
            yield left.stage

    @contextmanager
    def steps(self) -> Iterator[Callable[[str, int, int], None]]:
        """Give a callback (what, done, total) that shows each new `what` as a stage of its own."""
        name, before = "", 0
        stage: Stage | None = None
        with ExitStack() as opened:

            def step(what: str, done: int, total: int) -> None:
                nonlocal name, before, stage
                if stage is None or what != name:
                    opened.close()
                    name, before = what, 0
                    stage = opened.enter_context(self.stage(what, total))
                stage.advance(done - before)
                before = done

            yield step


class _Silent(Stage):
    def __init__(self, name: str, console: Console) -> None:
        super().__init__(name, None, None, console)

    def advance(self, count: int = 1) -> None:
        """Say nothing."""

    def finish(self) -> None:
        """Say nothing."""
