"""The figures every report opens with: what was harmful before, what is after, which events tell nothing of it.

Unknown stays apart: an event that was not replayed counts neither as harmful nor as clean.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, get_args

from memory_audit.counted import counted
from memory_audit.events import HARMFUL, EventVerdict
from memory_audit.report.untrusted import as_line
from memory_audit.result import Tally, bounded_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.result import (
        AuditResult,
        DescendantFinding,
        EntryScore,
        EventFinding,
        LineageStep,
        Proposal,
        TenantResult,
        TenantSummary,
    )

__all__ = [
    "Concern", "Summary", "Tone", "compared_note", "concern", "descendants_of", "headline", "lineage_notes",
    "path_line", "removed_of", "summarise", "tally", "untold", "worst_events", "worst_tenants",
]  # fmt: skip

Tone = Literal["good", "warn", "bad"]

_ADDED = tuple(field.name for field in fields(Tally) if field.name != "verdicts")

_BEYOND = 7
"""Order of the first concern that needs no person."""

MAX_NAMES = 8
MAX_STEP_CHARS = 60
"""Of an id on a path: a long one must not push the end of the path, the memory in question, out of the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Tally):
    """Counts over one tenant or over all: those of `memory_audit.result.Tally`, added up, and what is proposed."""

    entries: int
    events: int
    removed: int
    descendants: int
    """Of the removed entries, those that are there by descent from another one."""

    quarantined: int
    suspected: int
    """Memories that some evidence speaks against, and that stay."""

    not_examined: int
    """Lines on what was left out."""

    failed: int
    """Tenants that were not audited."""

    @property
    def did_harm(self) -> int:
        """Events whose replay with the whole store did harm and could be judged: those that a verdict speaks of."""
        return self.events - self.verdicts["not reproduced"] - self.verdicts["not examined"]

    @property
    def tone(self) -> Tone:
        """good: nothing is left open; warn: something was not judged; bad: harm remains or a probe lost its answer."""
        lost = self.probes - self.probes_kept - self.probes_unknown
        if self.verdicts["not cleared"] or lost:
            return "bad"
        open_ends = sum(self.verdicts[name] for name in ("not examined", "not reproduced", "contributed"))
        open_ends += self.not_examined + self.suspected + self.failed
        return "warn" if open_ends or self.verdicts["memory is not the cause"] or self.probes_unknown else "good"


def removed_of(tenant: TenantResult) -> list[EntryScore]:
    """Return the tenant's removed entries by rank."""
    removed = (score for score in tenant.scores if score.entry_id in tenant.removal.removed)
    return sorted(removed, key=lambda score: (score.rank, score.entry_id))


def tally(tenant: TenantResult) -> Tally:
    """Count a tenant's events and probes."""
    pairs = [
        (event.harm_before, event.harm_after)
        for event in tenant.events
        if event.harm_before is not None and event.harm_after is not None
    ]
    bare = [event.harm_without_memory for event in tenant.events]
    return Tally(
        verdicts=dict(sorted(Counter(event.verdict for event in tenant.events).items())),
        judged=len(pairs),
        harmful_before=sum(before >= HARMFUL for before, _ in pairs),
        harmful_after=sum(after >= HARMFUL for _, after in pairs),
        harm_before=sum(before for before, _ in pairs),
        harm_after=sum(after for _, after in pairs),
        harmful_without_memory=sum(harm is not None and harm >= HARMFUL for harm in bare),
        unsettled=sum(map(_is_unsettled, tenant.events)),
        probes=len(tenant.probes),
        probes_kept=sum(probe.kept is True for probe in tenant.probes),
        probes_unknown=sum(probe.kept is None for probe in tenant.probes),
    )


def summarise(tenants: Sequence[TenantSummary]) -> Summary:
    """Count over the given tenants; of verdicts also those with 0 events."""
    tallies = [tenant.tally for tenant in tenants]
    verdicts: dict[EventVerdict, int] = {
        verdict: sum(tally.verdicts.get(verdict, 0) for tally in tallies) for verdict in get_args(EventVerdict)
    }
    return Summary(
        verdicts=verdicts,
        entries=sum(tenant.entries for tenant in tenants),
        events=sum(verdicts.values()),
        removed=sum(len(tenant.removal.removed) for tenant in tenants),
        descendants=sum(len(tenant.removal.derived) for tenant in tenants),
        quarantined=sum(len(tenant.removal.quarantined) for tenant in tenants),
        suspected=sum(len(tenant.removal.suspected) for tenant in tenants),
        not_examined=sum(len(tenant.not_examined) for tenant in tenants),
        failed=sum(tenant.failure is not None for tenant in tenants),
        **{name: sum(getattr(tally, name) for tally in tallies) for name in _ADDED},
    )


def _is_unsettled(event: EventFinding) -> bool:
    if event.verdict in {"not cleared", "not examined"}:
        return True
    stays = event.harm_after is not None and event.harm_after >= HARMFUL
    return stays and event.verdict != "memory is not the cause"


def worst_events(tenant: TenantResult) -> list[EventFinding]:
    """Return the events as reports list them, those that leave most open first: so a cut list keeps the worst."""
    order: dict[EventVerdict, int] = {"not cleared": 0, "contributed": 1, "not examined": 2}
    return sorted(tenant.events, key=lambda event: order.get(event.verdict, len(order)))


@dataclass(frozen=True, slots=True)
class Concern:
    """What is most pressing at a tenant."""

    order: int
    """0 is the most pressing of all."""

    words: str
    tone: Tone
    needs_person: bool


def concern(tenant: TenantSummary) -> Concern:
    """Return what is most pressing at a tenant."""
    verdicts, removal, tally = tenant.tally.verdicts, tenant.removal, tenant.tally
    known: tuple[tuple[object, str, Tone], ...] = (
        (tenant.failure, "not audited", "bad"),
        (verdicts.get("not cleared"), "harm remains", "bad"),
        (tally.probes - tally.probes_kept - tally.probes_unknown, "costs an answer", "bad"),
        (removal.removed, "to remove", "bad"),
        (removal.quarantined, "to quarantine", "warn"),
        (verdicts.get("not examined") or tenant.not_examined, "not examined", "warn"),
        (removal.suspected, "suspected", "warn"),
        (verdicts.get("memory is not the cause"), "not by memory", "warn"),
        (verdicts.get("not reproduced"), "not reproduced", "warn"),
        (True, "nothing found", "good"),
    )
    order, (_, words, tone) = next(item for item in enumerate(known) if item[1][0])
    return Concern(order, words, tone, needs_person=order < _BEYOND)


def worst_tenants(tenants: Sequence[TenantSummary]) -> list[TenantSummary]:
    """Return the tenants as reports list them: those that need a person first, so that a cut list keeps them."""
    return sorted(tenants, key=lambda tenant: concern(tenant).order)


def descendants_of(tenant: TenantResult, proposal: Proposal) -> list[DescendantFinding]:
    """Return the descendants of removed entries for which this is proposed."""
    found = () if tenant.lineage is None else tenant.lineage.descendants
    return [item for item in found if item.proposal == proposal]


def compared_note(tenant: TenantResult) -> str:
    """Say in sentences how much of a tenant was compared, and which inconsistency is usual there."""
    usual = tenant.usual_cas
    if usual is None:
        return "No memory was compared with its neighbours."
    compared = sum(score.cas is not None for score in tenant.scores)
    figures = ", ".join(
        f"{name} {estimate.value:.3g}" + (f" ± {estimate.error:.2g}" if usual.sampled < tenant.entries else "")
        for name, estimate in (("mean", usual.mean), ("median", usual.median), ("σ", usual.deviation))
    )
    of = f" (95 % intervals, of {usual.sampled:,} sampled)" if usual.sampled < tenant.entries else ""
    return (
        f"{compared:,} of {tenant.entries:,} memories were compared with their neighbours. Inconsistency here: "
        f"{figures}{of}."
    )


def lineage_notes(tenant: TenantResult) -> list[str]:
    """Return what descent costs and leaves open, in sentences; empty where nothing descends from a removed entry.

    Ids in them are untrusted text.
    """
    lineage = tenant.lineage
    if lineage is None or not lineage.descendants:
        return []
    notes = []
    derived = len(descendants_of(tenant, "remove"))
    if derived and tenant.probes:
        lost = lineage.probes_lost
        notes.append(
            f"Removing {_derived(derived)} costs no probe its answer." if not lost
            else f"Removing {_derived(derived)} costs {len(lost)} of {len(tenant.probes)} probes their answer: "
            f"{_names(lost)}. With `descendants: quarantine` these memories stay."
        )  # fmt: skip
    check = lineage.quarantine
    if check is not None:
        held = len(descendants_of(tenant, "quarantine"))
        price = (
            "costs no probe its answer" if not check.probes_lost else f"costs the answer of {_names(check.probes_lost)}"
        )
        harm = "" if not check.harmful else f", and {_names(check.harmful)} is harmful on that replay"
        notes.append(
            f"Purging the {held} proposed for quarantine too {price}{harm}. To quarantine all: memaudit purge "
            "--quarantine. To remove these too: memaudit purge --doubtful."
        )
    listed = len(descendants_of(tenant, "report"))
    if listed:
        notes.append(f"{_derived(listed)[0].upper()}{_derived(listed)[1:]} stay in the store: they are only reported.")
    return notes


def path_line(path: Sequence[LineageStep]) -> str:
    """Return a derivation path on one line, the ancestor first, bounded; its ids are shown as `as_line` does."""
    return " → ".join(
        ("" if step.weight is None else f"{step.weight:.2f} → ")
        + as_line(step.entry_id, MAX_STEP_CHARS)
        + (" (removed earlier)" if step.removed else "")
        for step in bounded_path(path)
    )


def _derived(count: int) -> str:
    return "the one derived memory" if count == 1 else f"the {count:,} derived memories"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(as_line(name, 40) for name in names[:MAX_NAMES])
    return shown + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


def headline(result: AuditResult) -> tuple[Tone, str]:
    """Return the verdict on the whole run as a sentence or two, and its tone."""
    total = summarise(result.tenants)
    tone, sentence = _verdict(result, total)
    if beyond := sum(bool(tenant.beyond_budget) for tenant in result.tenants):
        were = "was" if beyond == 1 else "were"
        sentence += f" A budget of replays was spent before {counted(beyond, 'tenant')} {were} examined."
    if not total.failed:
        return tone, sentence
    failed = f"{counted(total.failed, 'tenant')} could not be audited."
    return "bad", failed if total.failed == len(result.tenants) else f"{sentence} {failed}"


def _verdict(result: AuditResult, total: Summary) -> tuple[Tone, str]:
    memories, events = counted(total.removed, "memory"), counted(total.events, "harmful event")
    if total.events == 0:
        return "warn", "No harmful event was given, so nothing was attributed."
    if total.removed == 0:
        elsewhere = total.verdicts["memory is not the cause"]
        if elsewhere == total.events:
            return "warn", f"Memory is not the cause of the harm: {_without_cause(total, events)}."
        if not total.did_harm:
            return "warn", f"Nothing was attributed: {untold(total)}."
        tone: Tone = "bad" if total.verdicts["not cleared"] else "warn"
        return tone, f"No memory was found to cause the harm in {_scope(total)}."
    cleared = total.verdicts["cleared"]
    by_rank = _is_by_rank(result)
    removal = _highest_scores(result, total) if by_rank else memories
    if cleared == total.events and total.descendants and not by_rank:
        attributed = total.removed - total.descendants
        return total.tone, (
            f"{counted(attributed, 'memory')} caused the harm, {total.descendants:,} more derived from "
            f"{_them(attributed)}. Without all {total.removed:,}, no harm is left in {events}."
        )
    if cleared == total.events and not by_rank:
        return total.tone, f"{memories} caused the harm. Without {_them(total.removed)}, no harm is left in {events}."
    if not total.did_harm:
        return total.tone, f"What removing {removal} does is not known: {untold(total)}."
    if total.did_harm == 1 and not cleared:
        return total.tone, f"Removing {removal} does not end the harm in the {_scope(total)}.{_contributed(total)}"
    share = f"{cleared:,} of" if cleared < total.did_harm else "the" if cleared == 1 else "all"
    return total.tone, f"Removing {removal} ends the harm in {share} {_scope(total)}.{_contributed(total)}"


def _contributed(total: Summary) -> str:
    """Say where a memory is only a part of the cause; empty where it is not."""
    count = total.verdicts["contributed"]
    there = "There" if count == total.did_harm else f"In {counted(count, 'event')}"
    return f" {there} memory contributed, and the agent errs without it, too." if count else ""


def _is_by_rank(result: AuditResult) -> bool:
    """Tell whether S was cut from the ranking: benign memories may be in it, and none is called a cause."""
    return result.config.get("budget", "None") != "None" or result.config.get("attribution") == "loo"


def _highest_scores(result: AuditResult, total: Summary) -> str:
    """Name a set that was cut from the ranking, with what goes with it by descent."""
    cut = total.removed - total.descendants
    scores = "the highest score" if cut == 1 else f"the {cut:,} highest scores"
    tenants = len(result.removals)
    if tenants > 1:
        scores += f" of {counted(tenants, 'tenant')}"
    return scores + (f" and {_derived(total.descendants)}" if total.descendants else "")


def _without_cause(total: Summary, events: str) -> str:
    """Say how replays show that memory is not the cause of any event."""
    if total.harmful_without_memory == total.events:
        return f"it stays in all {events} with no memory at all"
    return f"in all {events} it stays with no memory at all, or comes with whichever memory is shown"


def untold(counts: Summary) -> str:
    """Say which events tell nothing of the removal; empty where each does."""
    quiet, unseen = counts.verdicts["not reproduced"], counts.verdicts["not examined"]
    parts = []
    if quiet:
        parts.append(f"{counted(quiet, 'event')} did no harm on replay and {'tells' if quiet == 1 else 'tell'} nothing")
    if unseen:
        parts.append(f"{counted(unseen, 'event')} {'was' if unseen == 1 else 'were'} not examined")
    return "; ".join(parts)


def _scope(total: Summary) -> str:
    """Name the events that a verdict speaks of, and those that it cannot."""
    if total.did_harm == total.events:
        return counted(total.events, "harmful event")
    return f"{counted(total.did_harm, 'event')} that did harm on replay; {untold(total)}"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"
