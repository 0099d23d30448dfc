"""A scan's findings as CSV (RFC 4180), a line each, for tickets and spreadsheets.

A cell that a spreadsheet would take for a formula gets an apostrophe in front. No memory text is in the file.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from memory_audit.report.untrusted import as_line
from memory_audit.scan.forms.words import day, described, fixed_now, live, memories, until

if TYPE_CHECKING:
    from memory_audit.scan.result import KnownFinding, ScanResult

__all__ = ["COLUMNS", "to_csv"]

COLUMNS = (
    "fingerprint", "state", "severity", "kind", "title", "tenant", "memory", "memories", "message", "advice",
    "taxonomy", "first_seen", "accepted_by", "accepted_until", "accepted_reason",
)  # fmt: skip

_FORMULA = frozenset(
    "=+-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
"""What begins a formula (OWASP, CSV injection); tabs and line ends are labels by then."""

MAX_CELL = 600
"""Characters of a cell."""


def to_csv(result: ScanResult) -> str:
    """Return the findings that are there, the worst first, and those that were fixed since the scan before."""
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    for known in (*live(result), *fixed_now(result)):
        writer.writerow(_cell(text) for text in _row(result, known))
    return file.getvalue()


def _row(result: ScanResult, known: KnownFinding) -> tuple[str, ...]:
    finding, kind, acceptance = known.finding, described(result, known.finding.kind), known.acceptance
    accepted = ("", "", "") if acceptance is None else (acceptance.by, until(acceptance), acceptance.reason)
    return (
        finding.fingerprint, known.state, finding.severity, finding.kind, kind.title, finding.tenant,
        "".join(finding.entry_ids[:1]), str(memories(finding)), finding.message, kind.advice,
        " ".join(kind.taxonomy), day(known.first_seen_ms), *accepted,
    )  # fmt: skip


def _cell(text: str) -> str:
    line = as_line(text, MAX_CELL)
    return f"'{line}" if line.lstrip()[:1] in _FORMULA else line
