"""The command line. With the files beside it the only one that reads keys, environment and clock, prints, and exits.

Its exit codes stand in `EXIT_CODES`, which ends `memaudit --help`.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.table import Table

from memory_audit.errors import DEFECT, AuditError, IncompleteError, UsageError
from memory_audit.jobs.cli.audit import audit, calibrate, plan
from memory_audit.jobs.cli.cluster import logs, status, submit
from memory_audit.jobs.cli.export import export
from memory_audit.jobs.cli.findings.accept import accept
from memory_audit.jobs.cli.findings.diff import diff
from memory_audit.jobs.cli.findings.scan import scan
from memory_audit.jobs.cli.forget import forget
from memory_audit.jobs.cli.gate import gate_app
from memory_audit.jobs.cli.guard import guard_app
from memory_audit.jobs.cli.incoming.events import events_app
from memory_audit.jobs.cli.incoming.import_ import import_, sources
from memory_audit.jobs.cli.keys.folder import keys_app
from memory_audit.jobs.cli.keys.policy import keys_add, keys_revoke, keys_rotate, keys_threshold
from memory_audit.jobs.cli.lineage import lineage_app
from memory_audit.jobs.cli.maintenance import offboard, redate, vacuum
from memory_audit.jobs.cli.nightly import nightly, render
from memory_audit.jobs.cli.purge import purge, release
from memory_audit.jobs.cli.report import explain, report
from memory_audit.jobs.cli.shared import (
    FINDINGS,
    VERSION,
    BackboneKeyEnv,
    Invocation,
    Json,
    check_choice,
    print_json,
)
from memory_audit.jobs.cli.verify import check_removed, verify
from memory_audit.jobs.passphrases import PASSPHRASES, VARIABLE, Passphrases
from memory_audit.jobs.watching.log import LOG, JsonLog
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.models.libraries.library_noise import quiet_imports
from memory_audit.provenance.mirror import with_addresses
from memory_audit.report.untrusted import as_line

__all__ = ["app", "main"]

INTERRUPTED = 130

CONTINUED = frozenset({"audit", "calibrate", "demo", "events", "nightly", "offboard", "purge", "scan"})
"""Commands that the same command continues."""


EXIT_CODES = """\b
Exit codes:
  0    done, also with findings
  1    findings, where --fail-on asks for them; what needs a person; removed memories that are back
  2    usage or configuration
  3    incomplete: start again to continue
  4    integrity or signature failure
  5    the store changed since the audit, or while it was read; a plan of another audit
  6    another command holds the store
  70   a defect, here or in an agent or scorer of yours: the traceback says where
  130  interrupted
"""

quiet_imports()  # processes that vLLM spawns import this file, and then vLLM

app = typer.Typer(
    name="memaudit",
    help="Find the poisoned memories of an LLM agent after harm was seen, remove them, publish a signed snapshot.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main(invocation: Invocation | None = None) -> NoReturn:
    """Run the command line; every error becomes one line and its exit code.

    Args:
        invocation: Says how models are started; None as usual.
    """
    _open_streams()
    errors = terminal(stderr=True)

    def fail(line: str, code: int, error: BaseException | None = None) -> NoReturn:
        line = with_addresses(line)
        if (log := LOG.get()) is None:
            errors.print(f"memaudit: {as_line(line, 600)}", markup=False, highlight=False, style="bold red")
        elif error is None:
            log(line, level="error", exit_code=code)
        else:
            log.error(error, exit_code=code)
        sys.exit(code)

    started = Invocation() if invocation is None else invocation
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends a job gently gets what Ctrl-C gets
    try:
        code = app(standalone_mode=False, obj=started)
    except AuditError as error:
        fail(str(error), error.exit_code, error)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except typer.Exit as stop:
        code = stop.exit_code
    except SystemExit as stop:  # typer's 1 where nobody reads on (`memaudit … | head`) would say findings
        code = IncompleteError.exit_code if stop.code == FINDINGS else stop.code
    except OSError as error:
        kind = UsageError if error.errno == errno.ENAMETOOLONG else IncompleteError
        fail(f"{error.filename or 'system'!s:.300}: {error.strerror or error}", kind.exit_code)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no finding
        show = getattr(error, "show", None)  # typer's own usage errors know how to print themselves
        if show is None and LOG.get() is not None:
            fail("", DEFECT, error)
        if show is None:
            traceback.print_exc()
            sys.exit(DEFECT)  # Python's own 1 would say findings
        show()
        sys.exit(getattr(error, "exit_code", UsageError.exit_code))
    if code == INTERRUPTED:
        kept = "; what was computed is kept, start the same command again"
        fail(f"interrupted{kept if started.command in CONTINUED else ''}", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _open_streams() -> None:
    """Make standard output and error take whatever is written.

    An ASCII or Latin-1 terminal shows `?` for what it lacks, and a closed stream (`>&-`) drops all: neither is worth
    ending an audit whose purge is still to come.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    passphrase_file: Annotated[
        Path | None,
        typer.Option(
            envvar="MEMAUDIT_PASSPHRASE_FILE",
            help="Passphrase of the keys or PIN of their token, or a folder with a file for each key; default: the "
            f"variable {VARIABLE}, else it is asked for.",
        ),
    ] = None,
    log_format: Annotated[
        str,
        typer.Option(
            envvar="MEMAUDIT_LOG_FORMAT",
            help="Of progress and errors: plain, or json, one object a line on standard error, without any text of a "
            "memory.",
        ),
    ] = "plain",
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    check_choice("--log-format", log_format, "plain", "json")
    LOG.set(JsonLog() if log_format == "json" else None)
    context.ensure_object(Invocation).command = context.invoked_subcommand
    PASSPHRASES.set(Passphrases(passphrase_file))
    if version:
        print(VERSION)  # noqa: T201 - scripts read it
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())  # noqa: T201
        raise typer.Exit(UsageError.exit_code)


def demo(
    folder: Annotated[Path, typer.Argument(help="Where to put the demo's keys, store and run.")] = Path("demo-run"),
    backbone: Annotated[str, typer.Option(help="Model to replay with.")] = "packaged",
    backbone_key_env: BackboneKeyEnv = None,
    *,
    local: Annotated[bool, typer.Option("--local", help="Run in this process, without Ray.")] = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Take recorded answers: seconds, and no model is needed.")
    ] = False,
) -> None:
    """Watch a poisoned help desk being audited, with real models.

    Takes at most 10 minutes; with --recorded some seconds.
    """
    from memory_audit.jobs.demo import run_demo  # noqa: PLC0415 - brings the corpus and the executors

    run_demo(
        folder, terminal(), backbone=backbone, backbone_key_env=backbone_key_env,
        executor="local" if local else "ray", recorded=recorded,
    )  # fmt: skip


def doctor(*, as_json: Json = False) -> None:
    """Check this machine: packages, weights, disk, memory, cores."""
    from memory_audit.jobs.doctor import examine  # noqa: PLC0415 - imports the model layer
    from memory_audit.models.weights.cache import cache_dir  # noqa: PLC0415

    checks = examine(cache_dir())
    if as_json:
        print_json([{"name": c.name, "ok": c.ok, "found": c.found, "advice": c.advice} for c in checks])
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for check in checks:
        table.add_row("ok" if check.ok else "--", check.name, check.found, check.advice)
    terminal().print(table)


# In the order in which a user meets them; --help lists commands before groups.
app.command()(demo)
keys_app.command("rotate")(keys_rotate)
keys_app.command("add")(keys_add)
keys_app.command("revoke")(keys_revoke)
keys_app.command("threshold")(keys_threshold)
for command in (
    verify, scan, plan, audit, report, explain, diff, accept, purge, release, calibrate, nightly, render, export,
    vacuum, offboard, redate, forget, doctor,
):  # fmt: skip
    app.command()(command)
app.command("import")(import_)
app.command()(sources)
app.command("check-removed")(check_removed)
app.command(context_settings={"allow_extra_args": True, "allow_interspersed_args": False})(submit)
app.command()(status)
app.command()(logs)
for group, name in (
    (keys_app, "keys"), (events_app, "events"), (guard_app, "guard"), (gate_app, "gate"), (lineage_app, "lineage"),
):  # fmt: skip
    app.add_typer(group, name=name)


if __name__ == "__main__":
    main()
