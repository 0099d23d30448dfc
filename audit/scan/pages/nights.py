"""Tenants by nights: how many open findings each scan saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_audit.scan.finding import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.scan.result import ScannedTenant, ScanResult

__all__ = ["MAX_NIGHTS", "MAX_TENANTS", "Night", "TenantNights", "history", "tenant_nights"]

MAX_NIGHTS = 30
MAX_TENANTS = 500


class Night(NamedTuple):
    """What one scan saw of a tenant."""

    open: int
    """Findings neither accepted nor fixed."""

    new: int
    worst: str
    """Severity; empty where nothing is open."""

    failed: bool = False


class TenantNights(NamedTuple):
    """A row: None where the tenant was not scanned."""

    tenant: str
    nights: Sequence[Night | None]


def tenant_nights(scans: Sequence[ScanResult]) -> list[TenantNights]:
    """Return a row for each tenant, those with the worst last night first; `scans` with the oldest first."""
    shown = scans[-MAX_NIGHTS:]
    nights = [{tenant.tenant: _night(tenant) for tenant in scan.tenants} for scan in shown]
    names = sorted(set().union(*nights), key=lambda name: (_urgency(nights[-1].get(name)), name))
    return [TenantNights(name, [night.get(name) for night in nights]) for name in names]


def history(scans: Sequence[ScanResult], wanted: set[str]) -> dict[str, list[tuple[int, str]]]:
    """Return when earlier scans saw findings, by fingerprint: clock and state, the oldest first."""
    seen: dict[str, list[tuple[int, str]]] = {}
    for scan in scans[-MAX_NIGHTS:]:
        for tenant in scan.tenants:
            for known in tenant.findings:
                if (name := known.finding.fingerprint) in wanted:
                    seen.setdefault(name, []).append((scan.scanned_at_ms, known.state))
    return seen


def _night(tenant: ScannedTenant) -> Night:
    found = [known for known in tenant.findings if known.state not in {"accepted", "fixed"}]
    worst = min((SEVERITIES.index(known.finding.severity) for known in found), default=None)
    new = sum(known.state in {"new", "returned"} for known in found)
    return Night(len(found), new, "" if worst is None else SEVERITIES[worst], tenant.failure is not None)


def _urgency(night: Night | None) -> tuple[int, int]:
    if night is None:
        return len(SEVERITIES) + 1, 0
    return (SEVERITIES.index(night.worst) if night.worst else len(SEVERITIES)), -night.open
