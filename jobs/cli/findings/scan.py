"""`memaudit scan`: what is in a memory, before anything goes wrong."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memory_audit.config import load_config
from memory_audit.counted import counted
from memory_audit.errors import IncompleteError, UsageError
from memory_audit.formats.outside_file import read_at_most
from memory_audit.jobs.cli.shared import (
    FINDINGS,
    VERSION,
    Json,
    Quiet,
    Reading,
    SourceOptions,
    check_choice,
    print_lines,
)
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.connect.address import SYSTEMS, parse_address, parse_options
from memory_audit.jobs.guard.judging import open_judging_guard
from memory_audit.jobs.places import check_folder
from memory_audit.jobs.run.run_audit import make_executor, model_specs
from memory_audit.jobs.scan.detectors import chosen, models_of
from memory_audit.jobs.scan.memories import SourceMemories, StoreMemories
from memory_audit.jobs.scan.read_scan import SCAN_FILE, read_scan, read_verdicts
from memory_audit.jobs.scan.run_scan import ScanRequest, last_scan
from memory_audit.jobs.scan.run_scan import scan as scan_all
from memory_audit.jobs.scan.scan_pages import write_pages
from memory_audit.jobs.spread_options import spread_options
from memory_audit.jobs.store.object_store import place_of
from memory_audit.jobs.watching.log import LOG
from memory_audit.jobs.watching.progress import Reporter, steps
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.models.loading import prepare
from memory_audit.report.untrusted import as_line
from memory_audit.scan.acceptances import ACCEPTANCES_FILE, MAX_FILE_BYTES, Acceptances, read_acceptances
from memory_audit.scan.fail_on import failing, parse_fail_on
from memory_audit.scan.forms.json import to_json
from memory_audit.scan.forms.table import scan_table
from memory_audit.scan.pages.commands import Places
from memory_audit.scan.severity import parse_severity_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from memory_audit.consistency.tenant_graph import TenantGraph
    from memory_audit.guard.guarded_store import GuardedStore
    from memory_audit.jobs.store.store_session import StoreSession
    from memory_audit.scan.detector import Need
    from memory_audit.scan.result import ScanResult

__all__ = ["scan"]

NO_BASELINE = "none"
PAGES = "pages"

LINEAGE: frozenset[Need] = frozenset({"lineage"})

SMALL = 20_000
"""Memories below which a scan is made in this process where no cluster is named: Ray would take longer to start."""


@spread_options
def scan(
    *,
    what: Annotated[
        str, typer.Argument(metavar="STORE|SYSTEM:PLACE", help="A signed store, or an agent's own memory.")
    ],
    out: Annotated[Path, typer.Option(help="Run folder; an unfinished scan in it is continued.")],
    reading: Reading,
    config: Annotated[Path | None, typer.Option(help="Default: memaudit.yaml where there is one.")] = None,
    detector: Annotated[list[str] | None, typer.Option(help="Only these detectors (repeatable).")] = None,
    without: Annotated[list[str] | None, typer.Option(help="All detectors but these (repeatable).")] = None,
    severity: Annotated[
        list[str] | None, typer.Option(metavar="KIND=SEVERITY", help="Severity of a kind of finding (repeatable).")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant; of a system's memories that name none, their tenant.")
    ] = None,
    option: SourceOptions = None,
    read: Annotated[
        str | None,
        typer.Option(
            help="Also look for restatements of what was removed, as the guard: behaviour, or behaviour+hazards; needs "
            "--local."
        ),
    ] = None,
    audits: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Audit whose verdicts are told among the findings (repeatable)."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="SCAN",
            help="Scan that this one is held against; default: the newest of the same memory beside --out; none: all "
            "is new.",
        ),
    ] = None,
    accepted: Annotated[
        Path | None, typer.Option(help=f"File of accepted findings; default: {ACCEPTANCES_FILE} where there is one.")
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option(help="Exit 1 on findings: new:high,returned for these states and severities.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(envvar="RAY_ADDRESS", help="Ray cluster; default: this machine.")
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Run in this process, without Ray.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look at what is in a memory. No event is needed, and nothing is removed.

    A system, such as mem0:FOLDER, is read where it is: no store is needed. Embedder and NLI are loaded only where a
    chosen detector asks them. What an earlier scan knows is not asked again.
    """
    asked = None if fail_on is None else parse_fail_on(fail_on)
    check_choice("--read", read, "behaviour", "behaviour+hazards")
    if read is not None and not local:
        raise UsageError("--read judges in this process: add --local")
    check_folder(out)
    names, missing = chosen(detector or (), without or ())
    rules = parse_severity_rules(parse_options(severity or (), "--severity"), "--severity")
    default = Path("memaudit.yaml")
    settings = load_config(config if config is not None else (default if default.is_file() else None), {})
    now = now_ms()
    known = _acceptances(accepted)
    console = terminal()
    session: StoreSession | None = None
    memories: SourceMemories | StoreMemories
    if what.partition(":")[0] in SYSTEMS:
        place = parse_address(what, parse_options(option or ()))
        memories = SourceMemories.read(place.open(), str(place), tenant=tenant, principal="import", now_ms=now)
        request = ScanRequest(source=str(place), memories=memories, detectors=names, config=settings, severity=rules,
            version=VERSION,
        )  # fmt: skip
        unfit = memories.unfit
    else:
        session = reading.open(place_of(what), now)
        snapshot, unfit = session.snapshot, ()
        memories = StoreMemories(snapshot=snapshot)
        request = ScanRequest(
            source=snapshot.store_id, memories=memories, detectors=names, config=settings,
            severity=rules, version=VERSION, snapshot_version=snapshot.version, snapshot_digest=snapshot.digest,
            tenants=() if tenant is None else (tenant,),
        )  # fmt: skip
        session.remember()
    verdicts = read_verdicts(audits, request.source) if audits else None
    before = None
    if baseline is None:
        before = last_scan(out, request.source)
    elif baseline != NO_BASELINE:
        before = Path(baseline), read_scan(Path(baseline))
    with Reporter(None if as_json else console, quiet=quiet, log=LOG.get()), _guard(session, read) as guarded:
        parts, specs = models_of(names), model_specs(settings)
        with steps() as progress:
            prepare(specs, progress, parts=parts)
        small = address is None and sum(request.sizes.values()) < SMALL
        executor = make_executor(specs, local=local or small or not parts, address=address)
        graphs: dict[str, TenantGraph] = {}
        try:
            result = scan_all(
                request, executor, out, now_ms=now, earlier=before, accepted=known, verdicts=verdicts,
                keep=graphs if small else None, guard_of=None if guarded is None else guarded.guard,
            )  # fmt: skip
        finally:
            executor.close()
        history = [] if before is None else [before[1]]
        page = write_pages(
            result, lambda name: replace(memories.of(name, LINEAGE, now), graph=graphs.get(name)), out / PAGES,
            Places(run=str(out), store=None if session is None else what), history,
        )  # fmt: skip
    if as_json:
        print(to_json(result), end="")  # noqa: T201
    else:
        print_lines(*missing)
        _show(result, console, known, unfit)
        print_lines(f"findings: {out / SCAN_FILE}", f"pages: {page}")
    failed = [one for one in result.tenants if one.failure is not None]
    if failed:
        raise IncompleteError(f"{counted(len(failed), 'tenant')} of {len(result.tenants):,} could not be scanned")
    if asked is not None and failing((item for one in result.tenants for item in one.findings), asked):
        raise typer.Exit(FINDINGS)


def _acceptances(file: Path | None) -> Acceptances:
    path = Path(ACCEPTANCES_FILE) if file is None else file
    if file is None and not path.exists():
        return Acceptances()
    return read_acceptances(read_at_most(path, MAX_FILE_BYTES), str(path))


@contextmanager
def _guard(session: StoreSession | None, mode: str | None) -> Iterator[GuardedStore | None]:
    if mode is not None and session is None:
        raise UsageError("--read: what was removed is known of a store; `memaudit check-removed` looks into a system")
    if session is None or mode is None:
        yield None
        return
    with open_judging_guard(session, mode, "packaged", None, "packaged") as guarded:
        yield guarded


def _show(result: ScanResult, console: Console, accepted: Acceptances, unfit: tuple[str, ...]) -> None:
    console.print(scan_table(result))
    every = [item for one in result.tenants for item in one.findings]
    print_lines(*(as_line(note, 300) for note in accepted.notes(every, result.scanned_at_ms)))
    if unfit:
        print_lines(f"{counted(len(unfit), 'record')} left out, such as: {as_line(unfit[0], 300)}")
