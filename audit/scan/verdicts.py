"""What audits found, as findings of a scan: memories to remove, memories that stay for now, events that stay harmful.

A verdict on a memory stands while the memory is in the store, one on an event while the run that says so is given. Its
key is the fingerprint that the audit's own SARIF has (`memory_audit.report.sarif`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.report.sarif import entry_print, event_print
from memory_audit.report.untrusted import as_line
from memory_audit.report.views import tenant_view
from memory_audit.scan.acceptances import Acceptances
from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding
from memory_audit.scan.life import track
from memory_audit.scan.result import ScannedTenant, ScanResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memory_audit.report.views import ReadTenant, TenantView
    from memory_audit.result import AuditResult
    from memory_audit.scan.finding import Severity

__all__ = ["AUDIT", "KINDS", "Verdicts", "as_scan", "verdicts_of"]

AUDIT = "audit"

MAX_EVENTS = 5
"""Events told of one memory."""

KINDS = {
    "poisoned-memory": Kind(
        title="A memory that an audit would remove",
        advice="Look at the audit's report, then remove what it names: memaudit purge RUN STORE --apply.",
        severity="high",
        taxonomy=("ASI06", "AML.T0080"),
    ),
    "harm-not-cleared": Kind(
        title="A harmful event stays harmful after the removal",
        advice="Look for its cause outside of memory, or audit it with a larger budget: memaudit explain RUN EVENT.",
        severity="medium",
        taxonomy=("ASI06",),
    ),
    "quarantined-memory": Kind(
        title="A memory derives from a removed one and stays for now",
        advice="Read it; memaudit purge RUN STORE --quarantine takes it out of use.",
        severity="low",
        taxonomy=("ASI06", "AML.T0080"),
    ),
}


class Verdicts:
    """What audits say of a memory that is scanned.

    Args:
        audits: All whose verdicts are to stand, of this memory: what none of them says any more counts as fixed.
    """

    def __init__(self, audits: Iterable[tuple[AuditResult, ReadTenant]]) -> None:
        self._found: dict[str, list[Finding]] = {}
        for result, read in audits:
            for summary in result.tenants:
                if summary.failure is None:
                    self._found.setdefault(summary.tenant, []).extend(_of_tenant(tenant_view(summary, read)))

    def __contains__(self, tenant: object) -> bool:
        """Tell whether an audit looked at a tenant."""
        return tenant in self._found

    def of(self, tenant: str, present: Iterable[str]) -> list[Finding]:
        """Return a tenant's verdicts, of memories those that are present by id."""
        here = set(present)
        return [finding for finding in self._found.get(tenant, ()) if here.issuperset(finding.entry_ids)]


def verdicts_of(result: AuditResult, read: ReadTenant) -> Iterator[Finding]:
    """Yield what one audit found, without any text of a memory, query or output."""
    for summary in result.tenants:
        if summary.failure is None:
            yield from _of_tenant(tenant_view(summary, read))


def as_scan(result: AuditResult, read: ReadTenant) -> ScanResult:
    """Return an audit as if it were the first scan of its tenants: all that it found is new."""
    started = result.started_ms
    found: dict[str, list[Finding]] = {}
    for finding in verdicts_of(result, read):
        found.setdefault(finding.tenant, []).append(finding)
    return ScanResult(
        source=result.store, snapshot_version=result.snapshot_version, snapshot_digest=result.snapshot_digest,
        scanned_at_ms=started, detectors={AUDIT: ""}, kinds=KINDS,
        tenants=tuple(
            ScannedTenant(
                tenant=summary.tenant, memories=summary.entries, copies=0, failure=summary.failure,
                findings=track(
                    found.get(summary.tenant, ()), (), now_ms=started, ran=(AUDIT,), accepted=Acceptances()
                ),
            )
            for summary in result.tenants
        ),
    )  # fmt: skip


def _of_tenant(view: TenantView) -> Iterator[Finding]:
    tenant = view.tenant.tenant
    for event in view.events:
        if event.verdict == "not cleared":
            yield _finding(
                "harm-not-cleared", tenant, (), event_print(tenant, event.event_id),
                f"event {as_line(event.event_id)} stays harmful without the removed memories", (event.event_id,),
            )  # fmt: skip
    for memory in view.removed:
        name = memory.score.entry_id
        caused = [event.event_id for event in view.events if name in event.causes]
        yield _finding(
            "poisoned-memory", tenant, (name,), entry_print(tenant, name, memory.text),
            f"an audit would remove it: {as_line(memory.reason, 300) or 'why is not recorded'}", caused,
        )  # fmt: skip
    for item in view.staying:
        if item.proposal == "quarantine":
            name = item.entry_id
            yield _finding(
                "quarantined-memory", tenant, (name,), entry_print(tenant, name, view.texts.get(name)),
                f"an audit proposes its quarantine: {as_line(item.reason, 300)}", (),
            )  # fmt: skip


def _finding(  # noqa: PLR0917, PLR0913 - the parts that differ
    kind: str, tenant: str, entry_ids: tuple[str, ...], key: str, message: str, events: Sequence[str]
) -> Finding:
    severity: Severity = KINDS[kind].severity
    evidence = tuple(Evidence(label="event", value=event) for event in events[:MAX_EVENTS])
    return Finding(
        detector=AUDIT, kind=kind, tenant=tenant, entry_ids=entry_ids, severity=severity, message=message,
        evidence=evidence, key=key,
    )  # fmt: skip
