"""The figures every report opens with: what was harmful before, what is after, what was not judged.

Unknown stays apart: an event that was not replayed counts neither as harmful nor as clean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from audit.result import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audit.result import AuditResult, EntryScore, TenantResult

__all__ = ["Summary", "Tone", "headline", "removed_of", "summarise"]

Tone = Literal["good", "warn", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts over one tenant or over all."""

    entries: int
    removed: int
    events: int
    judged: int
    """Events replayed both with the whole store and without the removed set."""

    harmful_before: int
    """Of the judged events, those with harm in the replay with the whole store."""

    harmful_after: int
    harm_before: float
    """Sum of harm over the judged events."""

    harm_after: float
    verdicts: dict[Verdict, int]
    """Every verdict, also those with 0 events."""

    probes: int
    probes_kept: int
    probes_unknown: int
    not_examined: int

    @property
    def tone(self) -> Tone:
        """good: nothing is left open; warn: something was not judged; bad: harm remains or a probe lost its answer."""
        lost = self.probes - self.probes_kept - self.probes_unknown
        if self.verdicts["not cleared"] or lost:
            return "bad"
        open_ends = self.verdicts["not examined"] + self.verdicts["not reproduced"] + self.not_examined
        return "warn" if open_ends or self.verdicts["memory is not the cause"] or self.probes_unknown else "good"


def removed_of(tenant: TenantResult) -> list[EntryScore]:
    """Return the tenant's removed entries by rank."""
    return sorted((score for score in tenant.scores if score.removed), key=lambda score: (score.rank, score.entry_id))


def summarise(tenants: Sequence[TenantResult]) -> Summary:
    """Count over the given tenants."""
    events = [event for tenant in tenants for event in tenant.events]
    pairs = [
        (event.harm_before, event.harm_after)
        for event in events
        if event.harm_before is not None and event.harm_after is not None
    ]
    probes = [probe for tenant in tenants for probe in tenant.probes]
    return Summary(
        entries=sum(tenant.entries for tenant in tenants),
        removed=sum(score.removed for tenant in tenants for score in tenant.scores),
        events=len(events),
        judged=len(pairs),
        harmful_before=sum(before > 0 for before, _ in pairs),
        harmful_after=sum(after > 0 for _, after in pairs),
        harm_before=sum(before for before, _ in pairs),
        harm_after=sum(after for _, after in pairs),
        verdicts={verdict: sum(event.verdict == verdict for event in events) for verdict in get_args(Verdict)},
        probes=len(probes),
        probes_kept=sum(probe.kept is True for probe in probes),
        probes_unknown=sum(probe.kept is None for probe in probes),
        not_examined=sum(len(tenant.not_examined) for tenant in tenants),
    )


def headline(result: AuditResult) -> tuple[Tone, str]:
    """Return the verdict on the whole run as one sentence, and its tone."""
    total = summarise(result.tenants)
    memories = "1 memory" if total.removed == 1 else f"{total.removed:,} memories"
    events = "1 harmful event" if total.events == 1 else f"{total.events:,} harmful events"
    if total.events == 0:
        return "warn", "No harmful event was given, so nothing was attributed."
    if total.removed == 0:
        blame = total.verdicts["memory is not the cause"]
        if blame == total.events:
            return "warn", f"Memory is not the cause of the harm: it stays in all {events} with no memory at all."
        return (
            "bad" if total.verdicts["not cleared"] else "warn"
        ), f"No memory could be held responsible for {events}."
    cleared = total.verdicts["cleared"]
    if cleared == total.events:
        return total.tone, f"{memories} caused the harm. Without {_them(total.removed)}, no harm is left in {events}."
    return total.tone, f"Removing {memories} ends the harm in {cleared:,} of {events}."


def _them(count: int) -> str:
    return "it" if count == 1 else "them"
