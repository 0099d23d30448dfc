"""Two scans, or two audits, of one store: what is new in the later one, fixed, back, or worse than it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.scan.finding import SEVERITIES

if TYPE_CHECKING:
    from memory_audit.scan.finding import Finding, Severity
    from memory_audit.scan.result import KnownFinding, ScanResult

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The later of two scans beside the earlier one; findings are the worst first."""

    new: tuple[Finding, ...]
    returned: tuple[Finding, ...]
    """Fixed in the earlier scan already."""

    fixed: tuple[Finding, ...]
    changed: tuple[tuple[Severity, Finding], ...]
    """Those of another severity, with the earlier one."""

    unseen: tuple[Finding, ...]
    """Of the earlier scan, where the later one did not look: their detector did not run, or their tenant failed."""


def compare(before: ScanResult, after: ScanResult) -> Comparison:
    """Compare two scans; one that went on from the other need not be among them."""
    was, now = _by_fingerprint(before), _by_fingerprint(after)
    looked = {tenant.tenant for tenant in after.tenants if tenant.failure is None}
    new: list[Finding] = []
    returned: list[Finding] = []
    fixed: list[Finding] = []
    unseen: list[Finding] = []
    changed: list[tuple[Severity, Finding]] = []
    for fingerprint, known in now.items():
        earlier = was.get(fingerprint)
        if known.state == "fixed":
            continue
        if earlier is None:
            (returned if known.state == "returned" else new).append(known.finding)
        elif earlier.state == "fixed":
            returned.append(known.finding)
        elif earlier.finding.severity != known.finding.severity:
            changed.append((earlier.finding.severity, known.finding))
    for fingerprint, known in was.items():
        later, finding = now.get(fingerprint), known.finding
        if known.state == "fixed" or (later is not None and later.state != "fixed"):
            continue
        seen = later is not None or (finding.tenant in looked and finding.detector in after.detectors)
        (fixed if seen else unseen).append(finding)
    return Comparison(
        new=_worst_first(new),
        returned=_worst_first(returned),
        fixed=_worst_first(fixed),
        changed=tuple(sorted(changed, key=lambda pair: _order(pair[1]))),
        unseen=_worst_first(unseen),
    )


def _by_fingerprint(result: ScanResult) -> dict[str, KnownFinding]:
    return {known.finding.fingerprint: known for tenant in result.tenants for known in tenant.findings}


def _worst_first(findings: list[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=_order))


def _order(finding: Finding) -> tuple[int, str, str, tuple[str, ...], str]:
    worst = SEVERITIES.index(finding.severity)
    return worst, finding.tenant, finding.kind, finding.entry_ids, finding.key
