"""Several runs of one store side by side: what each night named that is new, known, or came back.

A memory is named by a night that proposes to remove it or to quarantine it. It is *new* where no earlier night named
it, *known* where one did and it was left in the store, and *back* where it was taken out since: a purge or quarantine
of an earlier run says so, and now the same id, or the same text under another id, is there again. A memory that the run
examined may be back without being named. Runs are told apart by when they started. Nothing here reads files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from memory_audit.counted import counted
from memory_audit.errors import UsageError
from memory_audit.report.summary import Concern, Summary, concern, summarise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from memory_audit.report.summary import Tone
    from memory_audit.result import AuditResult, TenantSummary

__all__ = ["Cell", "Named", "Night", "NightTotal", "Nights", "compare", "nights_headline"]

State = Literal["new", "known", "back"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One run."""

    name: str
    """Of its folder."""

    result: AuditResult
    texts: Mapping[str, Mapping[str, str]]
    """Tenant to entry to a digest of its text, of what the run names."""

    taken: Mapping[str, Collection[str]]
    """Tenant to entries that a purge or a quarantine of this run took out."""

    present: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Tenant to entries that the run examined, of tenants from which an earlier night took any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One memory on one night."""

    tenant: str
    entry_id: str
    state: State
    reason: str
    """Why the night names it; empty where it does not."""

    since: int
    """Number of the night on which it, or its text, was first named."""

    as_id: str
    """Its id then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One tenant on one night."""

    concern: Concern
    harmful_before: int
    harmful_after: int
    named: int
    new: int
    known: int
    back: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NightTotal:
    """One night over all tenants."""

    name: str
    run_id: str
    started_ms: int
    seconds: float
    snapshot_version: int
    tenants: int
    counts: Summary
    counters: Mapping[str, int]
    taken: int
    """Memories that were taken out after it."""

    new: int
    known: int
    back: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nights:
    """What several runs come to, the earliest first."""

    store: str
    totals: tuple[NightTotal, ...]
    cells: Mapping[str, tuple[Cell | None, ...]]
    """Tenant to its nights; None where a night did not look at it. Those with most to look at first."""

    last: tuple[Named, ...]
    """What the last night shows: what came back first, then what is new."""


def compare(runs: Iterable[Night]) -> Nights:
    """Put runs side by side.

    Raises:
        UsageError: none, or of several stores.
    """
    nights = sorted(runs, key=lambda night: (night.result.started_ms, night.name))
    stores = {night.result.store for night in nights}
    if len(stores) != 1:
        raise UsageError(f"runs of {len(stores)} stores: nights are those of one")
    by_tenant: dict[str, list[TenantSummary | None]] = {}
    for number, night in enumerate(nights):
        for tenant in night.result.tenants:
            by_tenant.setdefault(tenant.tenant, [None] * len(nights))[number] = tenant
    named: list[list[Named]] = [[] for _ in nights]
    cells = {
        name: tuple(_history(name, list(zip(nights, of, strict=True)), named)) for name, of in sorted(by_tenant.items())
    }  # fmt: skip
    order = {"back": 0, "new": 1, "known": 2}
    return Nights(
        store=stores.pop(),
        totals=tuple(_total(night, found) for night, found in zip(nights, named, strict=True)),
        cells=dict(sorted(cells.items(), key=lambda item: _weight(item[1]))),
        last=tuple(sorted(named[-1], key=lambda item: (order[item.state], item.tenant, item.entry_id))),
    )


def nights_headline(nights: Nights) -> tuple[Tone, str]:
    """Say in a sentence what the last night brought."""
    last = nights.totals[-1]
    parts = [
        f"{count:,} {what}" for count, what in ((last.back, "back"), (last.new, "new"), (last.known, "known")) if count
    ]
    if not parts:
        return ("warn" if last.counts.tone == "bad" else last.counts.tone), "The last night names no memory."
    where = sum(cells[-1] is not None and bool(cells[-1].named or cells[-1].back) for cells in nights.cells.values())
    memories = counted(last.back + last.new + last.known, "memory")
    return "bad", f"The last night shows {memories} in {counted(where, 'tenant')}: {', '.join(parts)}."


def _history(
    tenant: str, nights: Sequence[tuple[Night, TenantSummary | None]], named: Sequence[list[Named]]
) -> Iterable[Cell | None]:
    """Yield a tenant's cell of each night, and add what the night names of it."""
    first: dict[str, tuple[int, str]] = {}
    """Id, or digest of a text, to the night that named it first, and the id then."""

    gone: set[str] = set()
    """Ids and digests that were taken out, and not seen since."""

    for number, (night, summary) in enumerate(nights):
        if summary is None:
            yield None
            continue
        reasons = {**summary.removal.removed, **summary.removal.quarantined}
        texts = night.texts.get(tenant, {})
        seen = {name: "" for name in night.present.get(tenant, ()) if name in gone} | reasons
        found = []
        for name, reason in seen.items():
            keys = [name, *([texts[name]] if name in texts else [])]
            earlier = next((first[key] for key in keys if key in first), None)
            state: State = "back" if gone & set(keys) else "new" if earlier is None else "known"
            since, as_id = (number, name) if earlier is None else earlier
            found.append(
                Named(tenant=tenant, entry_id=name, state=state, reason=reason, since=since, as_id=as_id)
            )  # fmt: skip
            for key in keys:
                first.setdefault(key, (since, as_id))
            gone.difference_update(keys)
        taken = set(night.taken.get(tenant, ()))
        gone |= taken | {texts[name] for name in taken if name in texts}
        named[number].extend(found)
        yield _cell(summary, found, len(reasons))


def _cell(summary: TenantSummary, found: Sequence[Named], named: int) -> Cell:
    states = [item.state for item in found]
    return Cell(
        concern=concern(summary), harmful_before=summary.tally.harmful_before,
        harmful_after=summary.tally.harmful_after, named=named,
        new=states.count("new"), known=states.count("known"), back=states.count("back"),
    )  # fmt: skip


def _weight(cells: Sequence[Cell | None]) -> tuple[int, ...]:
    """Sort what came back last night first, then by the concern of the last nights."""
    last = cells[-1]
    return (0 if last is not None and last.back else 1, *(99 if c is None else c.concern.order for c in cells[::-1]))


def _total(night: Night, named: Sequence[Named]) -> NightTotal:
    result, states = night.result, [item.state for item in named]
    return NightTotal(
        name=night.name, run_id=result.run_id, started_ms=result.started_ms, seconds=result.seconds,
        snapshot_version=result.snapshot_version, tenants=len(result.tenants), counts=summarise(result.tenants),
        counters=result.counters, taken=sum(map(len, night.taken.values())),
        new=states.count("new"), known=states.count("known"), back=states.count("back"),
    )  # fmt: skip
