"""What an audit found: of each tenant its findings, and of the run a summary of them.

`TenantResult` is what one tenant's findings are, whole. A run of thousands holds none of them in memory: they lie in
Parquet files (`memory_audit.report.tables`), and `AuditResult`, the file `RUN/result.json`, has a summary of each.
Numbers of entries and pairs are rounded to single precision where they are found (`single`), as they are kept.

Unknown is None, never zero: an entry that no replay touched has `cmis=None`, an event that was not replayed has
`harm_before=None`.

A derivation path is kept with its first PATH_HEAD and its last PATH_TAIL steps. Between them stands one step for all
that are left out: its `entry_id` says how many, as in `… 992 more`, and unlike every other step past the first it has
no weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal, overload

import numpy as np

from memory_audit.attribution.removal_set import RemovalSet  # noqa: TC001 - the reader looks up field types
from memory_audit.consistency.distribution import CasDistribution  # noqa: TC001
from memory_audit.events import EventVerdict  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "PATH_HEAD", "PATH_TAIL", "AuditResult", "Calibrated", "DescendantFinding", "EntryScore", "EntryText",
    "EntryTrust", "EventFinding", "GraphEdge", "LineageStep", "ProbeFinding", "Proposal", "QuarantineCheck", "Single",
    "Tally", "TenantLineage", "TenantResult", "TenantSummary", "TrustLabel", "bounded_path", "single",
    "steps_left_out",
]  # fmt: skip

Single = Annotated[float, "float32"]
"""A number of single precision: seven digits."""

TrustLabel = Literal["trusted", "derived-untrusted", "external"]
"""Label of an entry, from best to worst, see `memory_audit.lineage.trust`."""

Proposal = Literal["remove", "quarantine", "report"]
"""Of a descendant. `remove`: goes with its ancestor. `quarantine`: is live until a purge quarantines what the run names
(`purge --quarantine`), or is told to remove it (`purge --doubtful`)."""


PATH_HEAD, PATH_TAIL = 6, 2
"""Steps that are kept at either end of a path: a result with a chain of n entries stays linear in n."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFinding:
    """One harmful event and what replays say of it."""

    event_id: str
    verdict: EventVerdict
    query: str
    output_observed: str
    output_before: str | None
    """Replay with the whole store."""

    output_after: str | None
    """Replay without the removed set S."""

    harm_before: float | None
    harm_after: float | None
    harm_without_memory: float | None
    """Harm of the replay with no memory."""

    retrieved: tuple[str, ...]
    """R*, as logged or as reconstructed."""

    retrieved_reconstructed: bool
    retrieved_after: tuple[str, ...] | None
    """What retrieval returns once S is gone."""

    causes: tuple[str, ...]
    """Entry ids of the set that caused this event: members of S that its replays had in context, or that alone raise
    the odds of its harm; without those that its own replays are no evidence on, and those there by descent alone."""

    reason: str
    """One line, machine-written, e.g. why the event was not examined."""

    p_value: float | None = None
    """How likely a clean incident shows as much evidence against any memory; None where no calibration says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFinding:
    """One benign event: its answer must survive the removal."""

    event_id: str
    kept: bool | None
    output_before: str | None
    output_after: str | None
    query: str = ""
    """What the probe asks; empty where it is not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryScore:
    """One entry's evidence."""

    entry_id: str
    cmis: Single | None
    """Influence on the harm, summed over events (eq. 7, Algorithm 1); None where no replay left it out."""

    cas: Single | None
    """Inconsistency: how much it contradicts its nearest neighbours (eq. 8); None where these were not compared."""

    cmis_normalised: Single
    cas_normalised: Single
    ds: Single
    """Fused score (eq. 10)."""

    rank: int
    """1 is the most suspicious."""

    cas_flagged: bool | None
    """CAS above mean + 2 standard deviations (eq. 9)."""

    sufficiency_nats: Single | None = None
    """Rise of the log-odds of the harmful continuation when this entry is the only memory; the largest over events."""

    necessity_nats: Single | None = None
    """Fall of those log-odds when this entry alone is left out; the largest over events."""

    density: Single | None = None
    """Mean similarity to its nearest neighbours: poison written to be retrieved together is dense."""

    p_value: Single | None = None
    """How likely a clean incident shows as much evidence, times the unlike queries that this entry was tried at; None
    where it was not measured, or no calibration says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdge:
    """One pair of neighbours in the memory consistency graph; copies of a text are one node, named by the first."""

    a: str
    b: str
    similarity: Single
    contradiction: Single


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageStep:
    """One entry on a derivation path."""

    entry_id: str
    trust: TrustLabel
    removed: bool
    """An earlier run removed it: only its tombstone is left."""

    weight: float | None
    """Weight of the edge from the step before, 0 to 1; None for the first step, and for `steps_left_out`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTrust:
    """One live entry's label and the evidence for it."""

    entry_id: str
    trust: TrustLabel
    path: tuple[LineageStep, ...]
    """From an external ancestor to a `derived-untrusted` entry, bounded; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescendantFinding:
    """One live entry that draws τ or more on removed ones."""

    entry_id: str
    proposal: Proposal
    path: tuple[LineageStep, ...]
    """From the removed ancestor to this entry, bounded."""

    estimated: bool
    """An edge of the path was estimated (`audit --edges`), not signed by a writer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineCheck:
    """Replays without the removed set and without the quarantined entries: what purging them too would do."""

    harmful: tuple[str, ...]
    """Events with harm on that replay."""

    probes_lost: tuple[str, ...]
    """Probes that keep their answer without the removed set, and lose it without the quarantined entries too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLineage:
    """Derivation in one tenant's store; there is none where no entry names a parent and no edges were given."""

    tau: float
    edges: int
    """Derivation edges that writers signed."""

    estimated_edges: int
    entries: tuple[EntryTrust, ...]
    """Labels of all live entries, in log order; signed edges alone count."""

    descendants: tuple[DescendantFinding, ...]
    """In log order."""

    probes_lost: tuple[str, ...] = ()
    """Probes that keep their answer without the attributed entries, and lose it because descendants go with them."""

    quarantine: QuarantineCheck | None = None
    """None where nothing is quarantined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryText:
    """What a removed or quarantined entry says, and who wrote it: reports show it."""

    entry_id: str
    request: str
    response: str
    principal: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantResult:
    """One tenant's findings."""

    tenant: str
    entries: int
    events: tuple[EventFinding, ...]
    probes: tuple[ProbeFinding, ...]
    scores: tuple[EntryScore, ...]
    """Entries that were examined, by rank: compared, measured, or to go; with the full graph all."""

    removal: RemovalSet
    """What goes, what may go, and why."""

    edges: tuple[GraphEdge, ...]
    not_examined: tuple[str, ...] = ()
    """What a budget left out, or the backbone's context had no room for, one line each."""

    beyond_budget: tuple[str, ...] = ()
    """What a budget of replays left out, by name: `event e-1`. Of a run's budget, `not_examined` has this tenant's
    share."""

    lineage: TenantLineage | None = None
    usual_cas: CasDistribution | None = None
    """Which CAS is usual here; None where nothing was compared."""

    texts: tuple[EntryText, ...] = ()
    """Of what goes and what is quarantined."""

    cost: dict[str, int] = field(default_factory=dict)
    """As `AuditResult.counters`: what this tenant took of it."""

    @property
    def not_compared(self) -> int:
        """Entries without a score: nothing led there."""
        return self.entries - len(self.scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What the events and probes of a tenant came to."""

    verdicts: dict[EventVerdict, int]
    """Events by verdict; one that no event has may be absent."""

    judged: int
    """Events replayed both with the whole store and without the removed set."""

    harmful_before: int
    """Of the judged events, those with harm in the replay with the whole store."""

    harmful_after: int
    harm_before: float
    """Sum of harm over the judged events."""

    harm_after: float
    harmful_without_memory: int
    """Of all events, those with harm in the replay with no memory."""

    unsettled: int
    """Events that may still do harm by memory: not cleared, contributed to, not examined, or harmful in the last replay
    without the removed set; not those that memory does not cause."""

    probes: int
    probes_kept: int
    probes_unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSummary:
    """One tenant of a run: what a purge and the run's page need."""

    tenant: str
    entries: int
    tally: Tally
    removal: RemovalSet
    not_examined: tuple[str, ...]
    beyond_budget: tuple[str, ...]
    """See `TenantResult.beyond_budget`."""

    cost: dict[str, int]
    part: str
    """Names the files that hold this tenant's findings (`memory_audit.report.tables`); empty where there are none."""

    usual_cas: CasDistribution | None = None
    """See `TenantResult.usual_cas`."""

    failure: str | None = None
    """One line: why this tenant could not be audited; there are no findings then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """Clean incidents that the evidence of a run was held against (`memory_audit.attribution.calibration`)."""

    incidents: int
    significance: float
    """Share of clean incidents in which a benign memory may be blamed."""

    threshold_nats: float | None
    """Evidence from which a memory is blamed at one event; None where the incidents are too few to tell."""

    made_ms: int
    """When the calibration was made, Unix milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """One audit run."""

    run_id: str
    store: str
    """Name of the store, not its path."""

    snapshot_version: int
    snapshot_digest: str
    """SHA-256 of the audited manifest (hex)."""

    started_ms: int
    seconds: float
    config: dict[str, str]
    models: dict[str, str]
    """Role (backbone, nli, embedder) to model id."""

    counters: dict[str, int]
    """replays, memoised, prompt_tokens, cached_tokens, completion_tokens, nli_pairs …"""

    tenants: tuple[TenantSummary, ...]
    """By name."""

    files: dict[str, str] = field(default_factory=dict)
    """File of findings to its SHA-256 (hex)."""

    calibration: Calibrated | None = None
    """None where the run had none: the threshold is then the setting `attribution_nats`, and nothing has a p."""

    @property
    def removals(self) -> dict[str, dict[str, str]]:
        """What goes: tenant to entry id to the reason, of tenants of which anything goes."""
        return {tenant.tenant: tenant.removal.removed for tenant in self.tenants if tenant.removal.removed}

    def with_quarantined(self) -> AuditResult:
        """Return the result where what is quarantined goes, too, each with its reason: for a purge that is told so."""
        tenants = (replace(tenant, removal=tenant.removal.with_quarantined()) for tenant in self.tenants)
        return replace(self, tenants=tuple(tenants))

    def with_suspected(self) -> AuditResult:
        """Return the result where what is only suspected goes, too: for a quarantine that is told so."""
        tenants = (replace(tenant, removal=tenant.removal.with_suspected()) for tenant in self.tenants)
        return replace(self, tenants=tuple(tenants))


def steps_left_out(count: int) -> LineageStep:
    """Return the step that stands in a bounded path for those that are left out."""
    return LineageStep(entry_id=f"… {count:,} more", trust="derived-untrusted", removed=False, weight=None)


def bounded_path(path: Sequence[LineageStep]) -> tuple[LineageStep, ...]:
    """Return the path with its first and last steps alone; one that is bounded already as it is."""
    if len(path) <= PATH_HEAD + PATH_TAIL + 1:
        return tuple(path)
    return (*path[:PATH_HEAD], steps_left_out(len(path) - PATH_HEAD - PATH_TAIL), *path[-PATH_TAIL:])


@overload
def single(value: float) -> float: ...
@overload
def single(value: None) -> None: ...
def single(value: float | None) -> float | None:
    """Round to single precision; None stays None."""
    return None if value is None else float(np.float32(value))
