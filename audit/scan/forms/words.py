"""What every form of a scan shows: which findings, what their kind means, and whom they are about, in words."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.report.untrusted import as_line
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import SEVERITIES

if TYPE_CHECKING:
    from memory_audit.scan.finding import Finding
    from memory_audit.scan.result import Acceptance, KnownFinding, ScanResult

__all__ = ["day", "described", "fixed_now", "live", "memories", "named", "until"]


def live(result: ScanResult) -> list[KnownFinding]:
    """Return the findings that are there, of all tenants, the worst first."""
    found = [known for tenant in result.tenants for known in tenant.findings if known.state != "fixed"]
    return sorted(found, key=lambda known: SEVERITIES.index(known.finding.severity))


def fixed_now(result: ScanResult) -> list[KnownFinding]:
    """Return the findings that the scan before saw, and this one does not."""
    now = result.scanned_at_ms
    return [known for tenant in result.tenants for known in tenant.findings if known.fixed_ms == now]


def described(result: ScanResult, kind: str) -> Kind:
    """Return what a kind means; of one that nobody describes, its name."""
    return result.kinds.get(kind) or Kind(title=kind, advice="Look at the memories it names.", severity="info")


def named(finding: Finding) -> str:
    """Say which memories a finding is about; ids are safe on a line."""
    tenant = f"tenant {as_line(finding.tenant)}"
    if not finding.entry_ids:
        return tenant
    others = memories(finding) - 1
    more = f" and {counted(others, 'other')}" if others else ""
    return f"memory {as_line(finding.entry_ids[0])}{more} of {tenant}"


def memories(finding: Finding) -> int:
    """Return how many memories a finding is about."""
    return max(finding.affected, len(finding.entry_ids))


def until(acceptance: Acceptance) -> str:
    """Return the last day of an acceptance; of one for ever nothing."""
    return "" if acceptance.until_ms is None else day(acceptance.until_ms - 1)


def day(moment_ms: int) -> str:
    """Return the day of a moment, of Unix milliseconds, in UTC: `2027-03-31`."""
    return f"{dt.datetime.fromtimestamp(moment_ms / 1_000, dt.UTC):%Y-%m-%d}"
