"""`memaudit accept`: write into the file of acceptances that a finding is no problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from memory_audit.errors import UsageError
from memory_audit.formats.outside_file import read_at_most
from memory_audit.jobs.cli.shared import as_signed, print_lines
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.places import check_place
from memory_audit.jobs.scan.read_scan import read_findings
from memory_audit.provenance import durable
from memory_audit.report.untrusted import as_line
from memory_audit.scan.acceptances import ACCEPTANCES_FILE, MAX_FILE_BYTES, end_of, read_acceptances
from memory_audit.scan.forms.words import live, named

if TYPE_CHECKING:
    from memory_audit.scan.finding import Finding

__all__ = ["accept"]

SHORTEST = 8
"""Digits of a fingerprint that name a finding."""


def accept(
    run: Annotated[Path, typer.Argument(help="Run folder of a scan or an audit.")],
    fingerprint: Annotated[str, typer.Argument(help=f"Of the finding; its first {SHORTEST} digits or more.")],
    *,
    reason: Annotated[str, typer.Option(help="Why it is no problem.")],
    by: Annotated[str, typer.Option(envvar="USER", help="Who says so.")],
    until: Annotated[
        str | None, typer.Option(help="Last day on which it counts, as 2027-03-31; default: for ever.")
    ] = None,
    file: Annotated[Path, typer.Option("--file", help="File of acceptances.")] = Path(ACCEPTANCES_FILE),
) -> None:
    """Accept a finding, so that it fails no later scan.

    It is added to a file that belongs under version control; scans read it there.
    """
    if until is not None and end_of(until) <= now_ms():
        raise UsageError(f"--until is {until}, which is over")
    finding = _named(run, fingerprint)
    before = read_at_most(file, MAX_FILE_BYTES) if file.exists() else b""
    known = read_acceptances(before, str(file))
    if (there := next((item for item in known.items if item.fingerprint == finding.fingerprint), None)) is not None:
        raise UsageError(f"{file}: it is accepted there by {there.by:.80}, {_until(there.until)}: change that entry")
    said = {"reason": as_signed(reason, "--reason"), "by": as_signed(by, "--by"), **({"until": until} if until else {})}
    record, what = {"fingerprint": finding.fingerprint, **said}, f"{named(finding)} ({as_line(finding.kind)})"
    added = f"# {what}\n" + yaml.safe_dump([record], sort_keys=False, allow_unicode=True)
    text = before.decode() + ("\n" if before and not before.endswith(b"\n") else "") + added
    try:
        items = read_acceptances(text.encode(), str(file)).items
    except UsageError:
        if before:
            read_acceptances(added.encode(), str(file))  # which says what is wrong with what was given
        raise
    if items[:-1] != known.items:
        raise UsageError(f"{file}: nothing can be added at its end; write it yourself: {record}")
    durable.replace(check_place(file), text.encode())
    print_lines(f"accepted {what}, {_until(until)}: {file}")


def _named(run: Path, fingerprint: str) -> Finding:
    """Return the one finding whose fingerprint begins so."""
    if len(fingerprint) < SHORTEST:
        raise UsageError(f"the fingerprint is {fingerprint!r}, expected its first {SHORTEST} digits or more")
    found = [known.finding for known in live(read_findings(run)) if known.finding.fingerprint.startswith(fingerprint)]
    if len(found) != 1:
        raise UsageError(f"{run}: {len(found) or 'no'} findings have a fingerprint that begins {fingerprint!r:.80}")
    return found[0]


def _until(day: str | None) -> str:
    return "for ever" if day is None else f"until {day}"
