"""`memaudit submit` and `logs`: commands as jobs of a Ray cluster. `status`: of these, of runs and of nights."""

from __future__ import annotations

import datetime as dt
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.jobs.cli.shared import Json, print_json, print_lines
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.nightly.config import load_night
from memory_audit.jobs.nightly.journal import progress_of
from memory_audit.jobs.run.run_audit import read_result
from memory_audit.jobs.run.run_files import read_identity
from memory_audit.jobs.run.run_seal import SEAL_FILE
from memory_audit.jobs.watching.status import STATUS_FILE, groups_at_work, read_status, status_lines
from memory_audit.report.untrusted import as_line, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.result import AuditResult

__all__ = ["logs", "status", "submit"]

WATCH_S = 2.0
"""Between two looks at work."""

MAX_MESSAGE = 600
"""Characters of Ray's message that are shown: of a failed job it holds the last 20,000 of its log."""

MAX_TOLD = 20
"""Tenants that are told by name."""

Dashboard = Annotated[str, typer.Option("--address", envvar="RAY_API_SERVER_ADDRESS", help="Ray dashboard address.")]


def submit(
    context: typer.Context,
    address: Dashboard,
    name: Annotated[str, typer.Option(help="Job name; a second job of this name and day is refused.")],
    working_dir: Annotated[Path | None, typer.Option(help="Folder uploaded with the job.")] = None,
) -> None:
    """Run a memaudit command as a Ray job.

    Example: memaudit submit --address URL --name acme audit STORE --events EVENTS --out RUN
    """
    from memory_audit.jobs import cluster  # noqa: PLC0415 - imports Ray

    if not context.args:
        raise UsageError("nothing to submit: add the memaudit command to run, e.g. audit STORE --events E --out RUN")
    job = cluster.submission_id_of(name, dt.datetime.now(tz=dt.UTC).date())
    command = ["memaudit", *context.args]
    print(cluster.submit(address, command, submission_id=job, working_dir=working_dir))  # noqa: T201 - scripts read it


def status(
    job: Annotated[
        str, typer.Argument(help="Run folder, configuration of a nightly job, or job id as `submit` printed it.")
    ],
    address: Annotated[
        str | None, typer.Option(envvar="RAY_API_SERVER_ADDRESS", help="Ray dashboard address, for a job.")
    ] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until it is no longer at work.")] = False,
    as_json: Json = False,
) -> None:
    """Say how a run, a night or a submitted job is doing."""
    if Path(job).exists():
        while _show_work(Path(job), as_json=as_json) and watch:
            time.sleep(WATCH_S)
    elif watch or as_json:
        raise UsageError("--watch and --json are for runs and nights; of a job: memaudit logs --follow")
    elif address is None:
        raise UsageError(f"{job!r:.140}: no such file or folder; of a job, give the --address of its Ray dashboard")
    else:
        _show_job(job, address)


def _show_work(path: Path, *, as_json: bool) -> bool:
    """Say what a run in a folder is doing, or the nightly job of a configuration; return whether it is at work."""
    lines: list[str] = []
    if path.is_dir():
        read_identity(path)
        sealed = (path / SEAL_FILE).exists()
        told, groups = (None, {}) if sealed else (read_status(path / STATUS_FILE), groups_at_work(path))
        if told is None and not groups:
            lines = ["sealed" if sealed else "not at work; the same command continues it"]
        if sealed:
            lines += _beyond_budget(read_result(path))
    else:
        nights = path.absolute().parent / load_night(path).runs.folder
        lines = progress_of(nights)
        told = read_status(nights / STATUS_FILE)
        groups = {} if told is None or told.tally.folder is None else groups_at_work(Path(told.tally.folder))
    if as_json:
        record = {"work": told, "groups": groups, "lines": lines}
        print_json(msgspec.to_builtins(record))
    else:
        print_lines(*lines, *status_lines(told, groups, now_ms()))
    return told is not None or bool(groups)


def _beyond_budget(result: AuditResult) -> Iterator[str]:
    """Name what a budget of replays left out of a run."""
    left = [tenant for tenant in result.tenants if tenant.beyond_budget]
    for tenant in left[:MAX_TOLD]:
        yield as_line(f"beyond its budget: {tenant.tenant}: {', '.join(tenant.beyond_budget)}", MAX_MESSAGE)
    if len(left) > MAX_TOLD:
        yield f"and {counted(len(left) - MAX_TOLD, 'tenant')} more, see the report"


def _show_job(job: str, address: str) -> None:
    from memory_audit.jobs import cluster  # noqa: PLC0415

    found = cluster.status(address, job)
    message = " ".join(str(found.message or "").split())
    told = f"{found.status.value} {as_line(message, MAX_MESSAGE)}".strip()
    if len(message) > MAX_MESSAGE:
        told += f"; the whole of it: memaudit logs {shlex.quote(job)} --address {shlex.quote(address)}"
    print(told)  # noqa: T201


def logs(
    job: Annotated[str, typer.Argument(help="Job id.")],
    address: Dashboard,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the job ends.")] = False,
) -> None:
    """Print a submitted job's log."""
    from memory_audit.jobs import cluster  # noqa: PLC0415

    on_terminal = sys.stdout.isatty()
    for piece in cluster.logs(address, job, follow=follow):
        print(_visible(piece) if on_terminal else piece, end="", flush=True)  # noqa: T201 - who follows reads it now


def _visible(piece: str) -> str:
    """Return a piece of a log with labels for hidden characters: what a job printed may be what a memory says."""
    return "\n".join(
        "".join(f"<{part}>" if hidden else part for part, hidden in runs(line, len(line)))
        for line in piece.replace("\r\n", "\n").split("\n")
    )
