"""`memaudit nightly`: a night by its configuration. `memaudit render`: units that schedule it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from memory_audit.errors import UsageError
from memory_audit.jobs.cli.shared import Invocation, Json, Quiet, Wait, open_keyring, print_json, print_lines, watched
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.nightly.config import load_night
from memory_audit.jobs.nightly.notify import lines_of
from memory_audit.jobs.nightly.render import FORMS
from memory_audit.jobs.nightly.render import render as units
from memory_audit.jobs.nightly.run_night import run_night
from memory_audit.jobs.places import check_place
from memory_audit.jobs.watching.status import STATUS_FILE, StatusFile
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.provenance import durable

__all__ = ["nightly", "render"]

Config = Annotated[Path, typer.Argument(help="Configuration of the nightly job.")]


def nightly(
    context: typer.Context,
    config: Config,
    address: Annotated[
        str | None, typer.Option(envvar="RAY_ADDRESS", help="Ray cluster; default: this machine.")
    ] = None,
    wait: Wait = 0.0,
    *,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Do a night: import, audit, purge, tell.

    What the sources have new is imported, the tenants with harmful events are audited, and what was found is purged
    where the policy allows all of it. The same command continues a night that was stopped. Exit code 1 says that
    something waits for a person, 6 that another command holds the store.
    """
    chosen = load_night(config)
    if chosen.local and address is not None:
        raise UsageError(f"{config}: local runs without Ray: leave out --address, or unset RAY_ADDRESS")
    start = context.ensure_object(Invocation).start
    with (
        contextlib.chdir(config.absolute().parent),
        watched(
            None if as_json else terminal(),
            StatusFile(Path(chosen.runs.folder) / STATUS_FILE),
            Path(chosen.store),
            chosen.notify.run_metrics,
            quiet=quiet,
        ),
    ):
        told = run_night(
            chosen, open_keyring(Path(chosen.keys)),
            lambda request: start(request, local=chosen.local, address=address), now_ms=now_ms(), wait_s=wait,
        )  # fmt: skip
    if as_json:
        print_json(told)
    else:
        print_lines(*lines_of(told))
    print_lines(*told["untold"], stderr=True)
    if told["exit_code"]:
        raise typer.Exit(told["exit_code"])


def render(
    form: Annotated[str, typer.Argument(help="systemd, cron, k8s or raycron.")],
    config: Config,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write to; default: print.")] = None,
    *,
    alpha: Annotated[
        bool, typer.Option("--alpha", help="With raycron: a RayCronJob, which KubeRay has behind a feature gate.")
    ] = False,
) -> None:
    """Write units that schedule a nightly job.

    systemd: a service and its timer. cron: a line. k8s: a CronJob. raycron: a RayJob, to be created each night.
    """
    if form not in FORMS:
        raise UsageError(f"{form!r:.40} is none of {', '.join(FORMS)}")
    if alpha and form != "raycron":
        raise UsageError("--alpha is an option of raycron")
    chosen = load_night(config)
    if chosen.local and form == "raycron":
        raise UsageError(f"{config}: local runs without Ray; k8s schedules it without, too")
    files = units(form, config, chosen.schedule, alpha=alpha)
    for name, text in files.items():
        if out is None:
            print(text, end="" if len(files) == 1 else "\n")  # noqa: T201 - to be piped on
        else:
            durable.ensure_folder(out)
            durable.replace(check_place(out / name), text.encode())
            print_lines(f"written: {out / name}")
