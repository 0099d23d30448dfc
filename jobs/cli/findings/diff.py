"""`memaudit diff`: what two runs found, beside each other."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from memory_audit.jobs.cli.shared import Json, print_json
from memory_audit.jobs.clock import as_utc
from memory_audit.jobs.scan.read_scan import read_findings
from memory_audit.jobs.watching.terminal import terminal
from memory_audit.report.untrusted import as_line
from memory_audit.scan.comparison import compare
from memory_audit.scan.forms.words import named

if TYPE_CHECKING:
    from memory_audit.scan.comparison import Comparison
    from memory_audit.scan.finding import Finding
    from memory_audit.scan.result import ScanResult

__all__ = ["diff"]

MAX_ROWS = 100
"""Findings shown of each kind of change."""

STYLES = {"new": "red", "returned": "red", "changed": "yellow", "fixed": "green", "unseen": "dim"}
TITLES = {"changed": "severity", "unseen": "not looked for"}


def diff(
    before: Annotated[Path, typer.Argument(help="Run folder of the earlier scan or audit.")],
    after: Annotated[Path, typer.Argument(help="Run folder of the later one.")],
    *,
    as_json: Json = False,
) -> None:
    """Show what two scans or audits found beside each other.

    What is new, what is fixed, what returned, and whose severity is another one.
    """
    earlier, later = read_findings(before), read_findings(after)
    comparison = compare(earlier, later)
    if as_json:
        print_json({"before": _run(earlier), "after": _run(later), **_changes(comparison)})
        return
    console = terminal()
    for result in (earlier, later):
        console.print(Text(f"{as_line(result.source)}, {as_utc(result.scanned_at_ms)}", style="bold"))
    rows = _rows(comparison)
    for change, findings in rows.items():
        title, style = TITLES.get(change, change), STYLES[change]
        for was, finding in findings[:MAX_ROWS]:
            severity = finding.severity if was is None else f"{was} → {finding.severity}"
            what = f"{named(finding)}: {as_line(finding.message, 300)} ({as_line(finding.kind)}"
            console.print(Text(f"{title}, {severity}: {what}, {finding.fingerprint[:16]})", style=style))
        if len(findings) > MAX_ROWS:
            console.print(Text(f"{title}: {len(findings) - MAX_ROWS:,} more, see --json", style=style))
    if not any(rows.values()):
        console.print("no difference")


def _rows(comparison: Comparison) -> dict[str, list[tuple[str | None, Finding]]]:
    return {
        "new": [(None, finding) for finding in comparison.new],
        "returned": [(None, finding) for finding in comparison.returned],
        "changed": [(was, finding) for was, finding in comparison.changed],
        "fixed": [(None, finding) for finding in comparison.fixed],
        "unseen": [(None, finding) for finding in comparison.unseen],
    }


def _run(result: ScanResult) -> dict[str, Any]:
    return {
        "source": result.source, "snapshot_version": result.snapshot_version, "scanned_at_ms": result.scanned_at_ms
    }  # fmt: skip


def _changes(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    return {
        change: [{**_record(finding), **({} if was is None else {"was": was})} for was, finding in findings]
        for change, findings in _rows(comparison).items()
    }


def _record(finding: Finding) -> dict[str, Any]:
    """Return a finding without its evidence, which may be text of memories."""
    record: dict[str, Any] = msgspec.to_builtins(finding)
    del record["evidence"]
    return {**record, "fingerprint": finding.fingerprint}
