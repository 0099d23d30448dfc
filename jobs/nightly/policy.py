"""What a night may purge without a person: all that its audit found, or nothing.

A purge makes every other finding of its run stale, so what lies outside the policy holds back the rest too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.counted import counted
from memory_audit.report.untrusted import as_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.jobs.nightly.config import Policy
    from memory_audit.report.views import ReadTenant
    from memory_audit.result import AuditResult, TenantResult

__all__ = ["outside_policy"]


def outside_policy(result: AuditResult, read: ReadTenant, policy: Policy) -> list[str]:
    """Say what of a run's removals the policy leaves to a person, one line each; nothing where all is within.

    A removal that loses the answer of a probe is left to a person, whatever the policy says.

    Args:
        result: The run.
        read: Gives a tenant's findings. Raises UsageError where they were changed.
        policy: What is allowed.
    """
    removed = sum(map(len, result.removals.values()))
    if not removed:
        return []
    if not policy.most_entries:
        return [f"{counted(removed, 'memory')} would go, and the policy purges nothing"]
    lines = []
    if removed > policy.most_entries:
        lines.append(f"{counted(removed, 'memory')} would go, more than {policy.most_entries:,}")
    for tenant in result.tenants:
        if tenant.removal.removed:
            lines += (f"{as_line(tenant.tenant)}: {line}" for line in _of_tenant(read(tenant), policy))
    return lines


def _of_tenant(tenant: TenantResult, policy: Policy) -> Iterator[str]:
    removed = tenant.removal.removed
    if len(removed) > policy.most_share * tenant.entries:
        yield f"{len(removed):,} of {counted(tenant.entries, 'memory')} would go, more than {policy.most_share:.2%}"
    caused: set[str] = set()
    for event in tenant.events:
        caused.update(event.causes)
        if event.verdict not in policy.verdicts and removed.keys() & set(event.causes):
            yield f"event {as_line(event.event_id)} that they caused is {event.verdict}"
    if unexplained := tenant.removal.attributed.keys() - caused:
        yield f"{as_line(min(unexplained))} is the cause of no event"
    for probe in tenant.probes:
        if probe.kept is False:
            yield f"probe {as_line(probe.event_id)} would lose its answer"
    if policy.most_p is not None:
        p_values = {score.entry_id: score.p_value for score in tenant.scores}
        for entry_id in removed:
            p = p_values.get(entry_id)
            if p is None or p > policy.most_p:
                told = "no p" if p is None else f"p = {p:.3g}"
                yield f"{as_line(entry_id)} has {told}, not at most {policy.most_p:g}"
