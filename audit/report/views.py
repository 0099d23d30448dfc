"""What every form of the report shows of a tenant: figures, lists in their order, and what belongs to each memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.report.summary import Summary, lineage_notes, removed_of, summarise, worst_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_audit.result import (
        DescendantFinding,
        EntryScore,
        EntryText,
        EventFinding,
        LineageStep,
        ProbeFinding,
        TenantResult,
        TenantSummary,
        TrustLabel,
    )

    ReadTenant = Callable[[TenantSummary], TenantResult]
    """Reads the findings of one tenant of a run; a tenant that failed has none."""

__all__ = ["Removed", "TenantView", "tenant_view"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """One memory to remove."""

    score: EntryScore
    reason: str
    text: EntryText | None
    """None where the findings lack it."""

    trust: TrustLabel | None
    """None where the tenant has no lineage."""

    derived: bool
    """It is there by descent; `path` then begins at the removed ancestor."""

    path: tuple[LineageStep, ...]
    """Else from an external memory; empty where there is none."""

    @property
    def principal(self) -> str:
        """Who wrote it."""
        return "unknown" if self.text is None else self.text.principal


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """One tenant."""

    tenant: TenantResult
    counts: Summary
    removed: tuple[Removed, ...]
    """By rank."""

    removed_ids: frozenset[str]
    events: tuple[EventFinding, ...]
    """The worst first."""

    probes: tuple[ProbeFinding, ...]
    """Those whose answer changes first, then the unknown."""

    texts: dict[str, EntryText]
    """By entry."""

    staying: tuple[DescendantFinding, ...]
    """Descendants of removed entries that are quarantined or only reported."""

    notes: tuple[str, ...]
    """What descent costs and leaves open, in sentences; ids in them are untrusted text."""


def tenant_view(summary: TenantSummary, read: ReadTenant) -> TenantView:
    """Return what is shown of one tenant that was audited."""
    tenant = read(summary)
    texts = {text.entry_id: text for text in tenant.texts}
    lineage = tenant.lineage
    descendants = () if lineage is None else lineage.descendants
    trust = {} if lineage is None else {item.entry_id: item for item in lineage.entries}
    descent = {item.entry_id: item.path for item in descendants}
    removed = []
    for score in removed_of(tenant):
        name = score.entry_id
        found = trust.get(name)
        removed.append(
            Removed(
                score=score,
                reason=tenant.removal.removed[name],
                text=texts.get(name),
                trust=None if found is None else found.trust,
                derived=name in descent,
                path=descent.get(name, () if found is None else found.path),
            )
        )
    return TenantView(
        tenant=tenant,
        counts=summarise([summary]),
        removed=tuple(removed),
        removed_ids=tenant.removal.ids,
        events=tuple(worst_events(tenant)),
        probes=tuple(sorted(tenant.probes, key=lambda probe: (probe.kept is not False, probe.kept is not None))),
        texts=texts,
        staying=tuple(item for item in descendants if item.proposal != "remove"),
        notes=tuple(lineage_notes(tenant)),
    )
