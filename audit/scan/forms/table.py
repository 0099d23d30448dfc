"""A scan on the terminal: what matters most in one line, kinds of findings by severity, and whom it could not scan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from memory_audit.counted import counted
from memory_audit.report.untrusted import as_line
from memory_audit.scan.finding import SEVERITIES
from memory_audit.scan.forms.words import described, live

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memory_audit.scan.result import KnownFinding, ScanResult

__all__ = ["scan_table"]

MAX_SHOWN = 10
"""Tenants named that could not be scanned."""


def scan_table(result: ScanResult) -> RenderableType:
    """Return a scan for `rich.console.Console.print`."""
    found = [known for known in live(result) if known.state != "accepted"]
    shown: list[RenderableType] = [Text(_headline(result, found), style="bold")]
    rows = Counter((known.finding.severity, known.finding.kind) for known in found)
    fresh = Counter((known.finding.severity, known.finding.kind) for known in found if known.state != "known")
    if rows:
        table = Table("severity", "kind", "findings", "new", "what it is", "what to do", box=None)
        for severity, kind in sorted(rows, key=lambda row: (SEVERITIES.index(row[0]), row[1])):
            about = described(result, kind)
            table.add_row(
                severity, Text(as_line(kind)), f"{rows[severity, kind]:,}", f"{fresh[severity, kind]:,}",
                Text(as_line(about.title, 200)), Text(as_line(about.advice, 300)),
            )  # fmt: skip
        shown.append(table)
    states = Counter(known.state for one in result.tenants for known in one.findings)
    shown.append(Text(", ".join(f"{states[state]:,} {state}" for state in sorted(states)) or "no findings"))
    failed = [one for one in result.tenants if one.failure is not None][:MAX_SHOWN]
    shown += (Text(f"tenant {as_line(one.tenant)}: {as_line(one.failure or '', 300)}") for one in failed)
    return Group(*shown)


def _headline(result: ScanResult, found: list[KnownFinding]) -> str:
    """Say what matters most in one line."""
    memories, copies = (sum(getattr(one, name) for one in result.tenants) for name in ("memories", "copies"))
    high = sum(known.finding.severity == "high" for known in found)
    worst = f"{counted(high, 'finding')} of severity high" if high else "no finding of severity high"
    said = f"; {copies:,} of them ({100 * copies / memories:.1f} %) say what another one says" if copies else ""
    return f"{counted(memories, 'memory')} of {counted(len(result.tenants), 'tenant')}{said}; {worst}"
