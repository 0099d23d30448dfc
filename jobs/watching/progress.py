"""Progress on every stage over two seconds: a bar with count and ETA on a terminal, lines elsewhere.

Work tells what it does with `stage`, `say` and `tally`. Who hears it is whoever opened a `Reporter` around it: a
command, or a test. Where nobody did, nothing is shown.
"""

from __future__ import annotations

import datetime as dt
import time
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self

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

from memory_audit.jobs.watching.tally import Counts, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Task

    from memory_audit.jobs.watching.log import JsonLog
    from memory_audit.jobs.watching.tally import Label

__all__ = ["Reporter", "Stage", "about_run", "overheard", "say", "stage", "steps", "tally"]

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
        bar: Shows it on a terminal; None for lines.
        reporter: Says those, and hears that the stage begins or goes on.
        label: What is counted; None counts nothing.
    """

    def __init__(
        self, name: str, total: int | None, bar: Progress | None, reporter: Reporter, label: Label | None = None
    ) -> None:
        self.name, self.total, self.label, self._reporter = name, total, label, reporter
        self._counts = Counts() if label is None else reporter.tally.of(label)
        self._counts.waiting += total or 0
        self._bar = bar
        self._task = bar.add_task(name, total=total) if bar is not None else None
        self.done = 0
        self._first: tuple[int, float] | None = None
        """How much came first, and when."""

        self._started = self._said = self._counted = time.monotonic()
        self._counted_cpu = time.process_time()
        self._tell()

    def advance(self, count: int = 1) -> None:
        """Say that `count` more are done."""
        self.done += count
        self._counts.done += count
        self._counts.waiting -= count if self.total else 0
        now = time.monotonic()
        if self._first is None and self.done:
            self._first = (self.done, now)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done)
        elif now - self._said >= LINE_SECONDS and self.done != self.total:  # `finish` tells the end
            self._said = now
            self._say(self._line(now - self._started))
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
        now, cpu = time.monotonic(), time.process_time()
        self._counts.seconds += now - self._counted
        self._counts.cpu_seconds += cpu - self._counted_cpu
        self._counted, self._counted_cpu = now, cpu
        self._reporter.hear(self)

    def finish(self) -> None:
        """Say that it ended; a line only where it took long enough to wonder."""
        spent = time.monotonic() - self._started
        if self._bar is None and spent > WONDER_SECONDS:
            self._say(f"{self.name}: {self.done} done in {spent:.1f} s")

    def close(self) -> None:
        """Wait for nothing more, also where it failed."""
        self._counts.waiting -= max((self.total or 0) - self.done, 0)
        self._tell()

    def _say(self, line: str) -> None:
        self._reporter.say(line, stage=self.label, done=self.done, total=self.total)


class _LeftColumn(ProgressColumn):
    """What is left by the stage's own estimate; empty while there is no ground for one."""

    stage: Stage | None = None

    def render(self, task: Task) -> Text:
        """See `rich.progress.ProgressColumn`."""
        left_s = None if self.stage is None or task.finished else self.stage.left_s()
        return Text("" if left_s is None else f"ETA {dt.timedelta(seconds=round(left_s))}", style="progress.remaining")


class Reporter:
    """Opens stages on one console; as a context, it hears what `stage`, `say` and `tally` tell inside.

    Args:
        console: None, or `quiet`, shows nothing.
        quiet: Show nothing, and log nothing but what went wrong.
        heard: Is called with each stage that begins, goes on or ends, whatever is shown.
        tally: Counts what is done.
        log: Where lines go in place of the console.
    """

    def __init__(
        self,
        console: Console | None,
        *,
        quiet: bool = False,
        heard: Callable[[Stage], None] | None = None,
        tally: Tally | None = None,
        log: JsonLog | None = None,
    ) -> None:
        self._console = None if quiet or log is not None else console
        self._log, self._quiet, self._heard = log, quiet, heard
        self.tally = Tally() if tally is None else tally
        self._before: list[Token[Reporter]] = []

    def __enter__(self) -> Self:
        self._before.append(_listening.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _listening.reset(self._before.pop())

    def say(self, line: str, *, level: str = "info", **fields: Any) -> None:
        """Print one line; the fields are for whoever reads it by program."""
        if self._log is not None:
            if level != "info" or not self._quiet:
                self._log(line, level=level, **fields)
        elif self._console is not None:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def hear(self, stage: Stage) -> None:
        """Tell who listens how far a stage is."""
        self.tally.hear()
        if self._heard is not None:
            self._heard(stage)

    def about_run(self, run_id: str, folder: Path) -> None:
        """Say which run is told of from now on."""
        self.tally.run, self.tally.folder = run_id, str(folder.absolute())
        if self._log is not None:
            self._log.run = run_id

    def overheard(self, heard: Callable[[Stage], None], tally: Tally, *, shown: bool) -> Reporter:
        """Return one that shows what this one does, or nothing, for somebody else to hear, too."""
        if not shown:
            return Reporter(None, heard=heard, tally=tally)

        def both(stage: Stage) -> None:
            heard(stage)
            if self._heard is not None:
                self._heard(stage)

        return Reporter(self._console, quiet=self._quiet, heard=both, tally=tally, log=self._log)

    @contextmanager
    def stage(
        self, name: str, total: int | None = None, *, announced: bool = False, label: Label | None = None
    ) -> Iterator[Stage]:
        """Show one stage until the block ends.

        Args:
            name: What is done.
            total: How much of it; None where that is not known.
            announced: Nothing may advance for long, so a log names the stage when it begins.
            label: What is counted; None counts nothing.
        """
        with ExitStack() as opened:
            bar = left = None
            if self._console is not None and self._console.is_terminal:
                left = _LeftColumn()
                bar = opened.enter_context(
                    Progress(
                        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                        TimeElapsedColumn(), left, console=self._console, transient=False,
                    )
                )  # fmt: skip
            elif announced:  # a terminal shows its bar at once
                self.say(f"{name} …", stage=label)
            stage = Stage(name, total, bar, self, label)
            opened.callback(stage.close)
            if left is not None:
                left.stage = stage
            yield stage
            stage.finish()

    @contextmanager
    def steps(self) -> Iterator[Callable[[str, int, int], None]]:
        """Give a callback (what, done, total) that shows each new `what`, or one begun again, as a stage of its own.

        What is looked at now and then is done by the time that something else begins, however much of it was seen.
        """
        name, before = "", 0
        shown: Stage | None = None
        with ExitStack() as opened:

            def step(what: str, done: int, total: int) -> None:
                nonlocal name, before, shown
                if shown is None or what != name or total != shown.total or done < before:
                    if shown is not None and shown.total and (what != name or total != shown.total):
                        shown.advance(shown.total - shown.done)
                    opened.close()
                    name, before = what, 0
                    shown = opened.enter_context(self.stage(what, total))
                shown.advance(done - before)
                before = done

            yield step


_listening: ContextVar[Reporter] = ContextVar("reporter", default=Reporter(None))  # noqa: B039 - it shows nothing


def say(line: str, **fields: Any) -> None:
    """Tell whoever listens one line. See `Reporter.say`."""
    _listening.get().say(line, **fields)


def tally() -> Tally:
    """Return the counts of whoever listens."""
    return _listening.get().tally


def about_run(run_id: str, folder: Path) -> None:
    """Tell whoever listens which run is at work."""
    _listening.get().about_run(run_id, folder)


def overheard(heard: Callable[[Stage], None], tally: Tally, *, shown: bool) -> Reporter:
    """Return who hears what is told inside, beside whoever listens already. See `Reporter.overheard`."""
    return _listening.get().overheard(heard, tally, shown=shown)


def stage(
    name: str, total: int | None = None, *, announced: bool = False, label: Label | None = None
) -> AbstractContextManager[Stage]:
    """Tell whoever listens that a stage begins; it ends with the block. See `Reporter.stage`."""
    return _listening.get().stage(name, total, announced=announced, label=label)


def steps() -> AbstractContextManager[Callable[[str, int, int], None]]:
    """Give a callback that tells whoever listens one stage after the other. See `Reporter.steps`."""
    return _listening.get().steps()
