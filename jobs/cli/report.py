"""`memaudit report` and `explain`: show a run again, whole, or the path of one event through its search."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

from memory_audit.attribution.trace import MAX_BYTES, parse_log
from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_regular
from memory_audit.jobs.cli.shared import VERSION, Json, check_choice, print_json, print_lines
from memory_audit.jobs.places import check_place
from memory_audit.jobs.run.groups.plan import group_folders
from memory_audit.jobs.run.run_audit import read_result
from memory_audit.jobs.run.run_files import LOG_FILE, REPORT_FILE, RESULT_FILE, read_identity
from memory_audit.jobs.run.run_findings import RunFindings, found_of_few
from memory_audit.jobs.run.run_nights import read_nights, runs_of
from memory_audit.jobs.scan.read_scan import is_scan, read_scan
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.provenance import durable
from memory_audit.report.confidence import confidence_note, p_text
from memory_audit.report.html import FEW, render_html, render_nights, report_files
from memory_audit.report.json import to_json
from memory_audit.report.nights import compare
from memory_audit.report.sarif import to_sarif
from memory_audit.report.table import nights_table, render_table
from memory_audit.report.untrusted import as_line
from memory_audit.scan.forms.formats import FORMATS
from memory_audit.scan.forms.table import scan_table
from memory_audit.scan.verdicts import as_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from memory_audit.attribution.trace import Asked, TraceLine
    from memory_audit.report.nights import Nights
    from memory_audit.result import AuditResult, TenantSummary
    from memory_audit.scan.result import ScannedTenant

__all__ = ["explain", "report"]

T = TypeVar("T", "TenantSummary", "ScannedTenant")

_PHASES = {
    "reproduction": "Does memory cause the harm?",
    "harm span": "Are the words of the harm a place to measure at?",
    "divergence": "Where does a clean answer leave the harmful one?",
    "baseline": "What would any memory do there?",
    "reference": "Does the harm come with any memory?",
    "sufficiency": "What does each memory do alone?",
    "combinations": "Which memories bring the harm together?",
    "necessity": "What is lost without each memory?",
    "closure": "What do the memories do that moved up?",
    "verify": "Is the harm gone without the set?",
    "neighbours": "What do memories like those in the set do?",
    "restore": "Can memories be put back?",
    "choosing": "How many of the ranking must go?",
    "done": "Does anything derive from the set?",
}
"""What each phase of a search asks."""


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folder; several, or a folder of runs, stand side by side.")],
    form: Annotated[str, typer.Option("--format", "-f", help=f"table, html, {', '.join(FORMATS)}.")] = "table",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default: print.")] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Only this tenant; of an audit as json all that was found of it.")
    ] = None,
) -> None:
    """Show a finished run again, or several nights side by side."""
    check_choice("--format", form, "table", "html", *FORMATS)
    if len(runs) == 1 and is_scan(runs[0]):
        _scan(runs[0], form, out, tenant)
        return
    found = runs_of(runs)
    if len(found) > 1 or found != runs:
        if form not in {"table", "html", "json"} or tenant is not None:
            raise UsageError("several nights have the forms table, html and json, and no --tenant: name one run")
        _nights(compare(read_nights(found)), form, out)
        return
    (run,) = found
    result = read_result(run)
    read = RunFindings(run, result)
    if tenant is not None:
        result = replace(result, tenants=_chosen(result.tenants, tenant))
    if form == "table":
        _print_table(render_table(result, read), out)
        return
    if form == "html" and len(result.tenants) > FEW:
        _write_pages(run, result, read, out)
        return
    if form == "json":
        text = to_json(result, found=found_of_few(result, read), indent=1) if tenant is None else _details(read, result)
    elif form == "html":
        text = render_html(result, read)
    elif form == "sarif":
        text = to_sarif(result, read, VERSION)
    else:
        text = FORMATS[form](as_scan(result, read), VERSION)
    _write(text, out)


def _scan(run: Path, form: str, out: Path | None, tenant: str | None) -> None:
    """Show a scan again."""
    if form == "html":
        raise UsageError(f"{run}: a scan has the forms table, {', '.join(FORMATS)}")
    result = read_scan(run)
    if tenant is not None:
        result = replace(result, tenants=_chosen(result.tenants, tenant))
    if form == "table":
        _print_table(scan_table(result), out)
        return
    _write(FORMATS[form](result, VERSION), out)


def _nights(nights: Nights, form: str, out: Path | None) -> None:
    if form == "table":
        _print_table(nights_table(nights), out)
    elif form == "html":
        _write(render_nights(nights), out)
    else:
        _write(json.dumps(msgspec.to_builtins(nights), indent=1) + "\n", out)


def _print_table(table: RenderableType, out: Path | None) -> None:
    if out is not None:
        raise UsageError("--format table is for the terminal; choose another to write a file")
    terminal().print(table)


def _write(text: str, out: Path | None) -> None:
    if out is not None:
        durable.replace(check_place(out), text.encode())
        print_lines(f"written: {out}")
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())  # UTF-8, as it says of itself, whatever the terminal's encoding
    sys.stdout.buffer.flush()


def _chosen(tenants: Sequence[T], name: str) -> tuple[T, ...]:
    """Return the one tenant of that name."""
    chosen = tuple(tenant for tenant in tenants if tenant.tenant == name)
    if not chosen:
        raise UsageError(f"--tenant: the run has no {name!r:.80}; it is about {counted(len(tenants), 'tenant')}")
    return chosen


def _details(read: RunFindings, result: AuditResult) -> str:
    (tenant,) = result.tenants
    if tenant.failure is not None:
        raise UsageError(f"tenant {tenant.tenant!r:.80} was not audited: {tenant.failure:.300}")
    return json.dumps(msgspec.to_builtins(read(tenant)), indent=1) + "\n"


def _write_pages(run: Path, result: AuditResult, read: RunFindings, out: Path | None) -> None:
    """Write an index, and a page a tenant into a folder beside it."""
    if out is None:
        raise UsageError(
            f"{run}: {len(result.tenants)} tenants have a page each: say where with --out, or open {run / REPORT_FILE}"
        )
    place, folder = check_place(out), f"{out.stem}-tenants"
    durable.ensure_folder(place.parent / folder)
    for name, page in report_files(result, read, place.name, folder):
        durable.replace(place.parent / name, page.encode())
    print_lines(f"written: {out}, with a page for each tenant in {place.parent / folder}")


def explain(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    event: Annotated[str, typer.Argument(help="Id of a harmful event.")],
    *,
    as_json: Json = False,
) -> None:
    """Say how one event was judged, round by round.

    What was asked, what was seen, and what followed. Reads the debug log of the run's search, which nothing else uses.
    It holds ids and numbers, and no text of memories. How sure the finding is stands last, once the run is finished.
    """
    lines = list(_lines(run, event))
    if not lines:
        raise UsageError(f"{run}: no harmful event {event!r:.80} in its search; probes are not searched")
    if as_json:
        print_json([asdict(line) for line in lines])
        return
    console = terminal()
    console.print(f"Event {as_line(event)} of tenant {as_line(lines[0].tenant)}", markup=False, highlight=False)
    for line in lines:
        for text in _told(line):
            console.print(text, markup=False, highlight=False)
    for text in _confidence(run, lines[0]):
        console.print(text, markup=False, highlight=False)


def _lines(run: Path, event: str) -> Iterator[TraceLine]:
    """Yield what a run's logs say of an event, by the word of files that anybody may have written: to show alone."""
    read_identity(run)
    logs = [folder / LOG_FILE for folder in group_folders(run) if (folder / LOG_FILE).is_file()]
    if not logs:
        raise UsageError(f"{run}: no {LOG_FILE}; it is written when the search has ended: start the same audit again")
    for log in logs:
        try:
            data = read_regular(log, MAX_BYTES)
        except OSError as error:
            raise UsageError(f"{log}: cannot be read ({error.strerror})") from None
        if json.dumps(event).encode() in data:  # as the log spells it
            yield from (line for line in parse_log(data, str(log)) if line.event_id == event)


def _confidence(run: Path, line: TraceLine) -> Iterator[str]:
    if not (run / RESULT_FILE).is_file():
        return
    result = read_result(run)
    yield f"\nconfidence: {confidence_note(result.calibration)}"
    read = RunFindings(run, result)
    for tenant in (read(summary) for summary in result.tenants if summary.tenant == line.tenant):
        p_values = {score.entry_id: score.p_value for score in tenant.scores}
        for event in tenant.events:
            if event.event_id == line.event_id and event.p_value is not None:
                yield f"  p = {p_text(event.p_value)} for the event"
                yield from (f"  p = {p_text(p_values.get(name))} for {as_line(name)}" for name in event.causes)


def _told(line: TraceLine) -> Iterator[str]:
    yield f"\nround {line.round}: {_PHASES.get(line.phase, as_line(line.phase))}"
    for asked in line.asked:
        yield f"  asked     {_question(asked)}: {_answer(asked)}"
    if line.more:
        yield f"  asked     {counted(line.more, 'more question')}"
    for text in line.followed:
        yield f"  followed  {as_line(text, 300)}"
    yield f"  search    {as_line(line.why, 300)}"


def _question(asked: Asked) -> str:
    names = ", ".join(as_line(name, 60) for name in asked.entries)
    names += f" and {asked.count - len(asked.entries)} more" if asked.count > len(asked.entries) else ""
    left_out = asked.kind in {"full", "leave_one_out", "removal", "probe"}
    shown = {"full": "every memory in place", "no_memory": "no memory"}.get(asked.kind)
    if shown is None:
        shown = f"all but {names}" if left_out and names else f"{names} alone" if names else "every memory in place"
    what = {
        "text": "the answer with",
        "sample": "sampled answers with",
        "odds": f"the odds of the harmful words at point {asked.point} with",
        "continuation": f"how a clean answer goes on past point {asked.point} with",
    }
    return f"{what.get(asked.measure, as_line(asked.measure))} {shown}"


def _answer(asked: Asked) -> str:
    harm = None if asked.harm is None else f"harm {asked.harm:.2f}"
    nats = None if asked.nats is None else f"{asked.nats:.1f} nats"
    told = ", ".join(part for part in (harm, nats) if part is not None)
    return told or ("no odds there" if asked.measure == "continuation" else "unknown")
