"""What an audit found: the value that the job writes to `RUN/result.json` and every report reads.

Unknown is None, never zero: an entry that no replay touched has `cmis=None`, an event that was not replayed has
`harm_before=None`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["AuditResult", "EntryScore", "EventFinding", "GraphEdge", "ProbeFinding", "TenantResult", "Verdict"]

Verdict = Literal["cleared", "not cleared", "memory is not the cause", "not reproduced", "not examined"]
"""Of one event. `cleared`: harm is gone on replay without S. `memory is not the cause`: harm stays with no memory at
all. `not reproduced`: the replay with every memory in place shows no harm, so removal cannot be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFinding:
    """One harmful event and what replays say of it."""

    event_id: str
    verdict: Verdict
    query: str
    output_observed: str
    output_before: str | None
    """Replay with the whole store."""

    output_after: str | None
    """Replay without the removed set S."""

    harm_before: float | None
    harm_after: float | None
    harm_without_memory: float | None
    """Harm of the gate replay: every memory removed."""

    retrieved: tuple[str, ...]
    """R*, as logged or as reconstructed."""

    retrieved_reconstructed: bool
    retrieved_after: tuple[str, ...] | None
    """What retrieval returns once S is gone."""

    causes: tuple[str, ...]
    """Entry ids of the set that caused this event: members of S that its replays had in context."""

    reason: str
    """One line, machine-written, e.g. why the event was not examined."""


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
    cmis: float | None
    """Counterfactual influence summed over events (eq. 7, Algorithm 1); None where no replay left it out."""

    cas: float | None
    """Structural anomaly (eq. 8)."""

    cmis_normalised: float
    cas_normalised: float
    ds: float
    """Fused score (eq. 10)."""

    rank: int
    """1 is the most suspicious."""

    cas_flagged: bool
    """CAS above mean + 2 standard deviations (eq. 9)."""

    removed: bool
    reason: str
    """Why it was removed, or empty."""

    sufficiency_nats: float | None = None
    """Rise of the log-odds of the harmful continuation when this entry is the only memory; the largest over events."""

    necessity_nats: float | None = None
    """Fall of those log-odds when this entry alone is left out; the largest over events."""

    density: float | None = None
    """Mean similarity to its nearest neighbours: poison written to be retrieved together crowds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdge:
    """One pair of neighbours in the memory consistency graph."""

    a: str
    b: str
    similarity: float
    contradiction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantResult:
    """One tenant's findings."""

    tenant: str
    entries: int
    events: tuple[EventFinding, ...]
    probes: tuple[ProbeFinding, ...]
    scores: tuple[EntryScore, ...]
    """All entries, by rank."""

    edges: tuple[GraphEdge, ...]
    not_examined: tuple[str, ...] = ()
    """What a budget left out, one line each."""


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

    tenants: tuple[TenantResult, ...]
    entries_text: dict[str, dict[str, str]] = field(default_factory=dict)
    """`tenant/entry_id` to request, response, principal and source of the removed entries: the report shows them."""
