"""Turn what an audit measured into what it found: scores, ranking, verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from audit.attribution.ablation import Outcome, leave_out
from audit.attribution.evidence import credit, sum_over_events
from audit.attribution.probes import same_answer
from audit.attribution.search import HARMFUL
from audit.fusion import FusedScore, fuse
from audit.result import EntryScore, EventFinding, GraphEdge, ProbeFinding, TenantResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audit.attribution.retrieval import RankedMemory
    from audit.attribution.search import EventState, SetSearch
    from audit.config import AuditConfig
    from audit.events import Event
    from audit.result import Verdict
    from jobs.consistency import TenantGraph

__all__ = ["TenantEvidence", "influence_scores", "rank", "tenant_result"]


@dataclass(slots=True, kw_only=True)
class TenantEvidence:
    """Everything measured of one tenant, as it grows."""

    tenant: str
    memory: RankedMemory
    tenant_graph: TenantGraph
    search: SetSearch
    probes: tuple[Event, ...]
    ranking: tuple[FusedScore, ...] = ()
    removed: dict[str, str] = field(default_factory=dict)
    checked: dict[str, Outcome] = field(default_factory=dict)


def influence_scores(found: TenantEvidence) -> Mapping[str, float]:
    """Sum influence over events: the credit rule of `audit.attribution.evidence`, or plain CMIS with `loo`."""
    plain = found.search.settings.attribution == "loo"
    return sum_over_events(
        (entry_id, influence.cmis if plain else credit(influence))
        for _, state in sorted(found.search.states.items())
        for entry_id, influence in sorted(state.influences.items())
    )


def rank(found: TenantEvidence, influence: Mapping[str, float], alpha: float) -> tuple[FusedScore, ...]:
    """Fuse influence with CAS (eq. 10)."""
    ids = [entry.entry_id for entry in found.memory.entries]
    return fuse(ids, [influence.get(entry_id) for entry_id in ids], found.tenant_graph.graph.cas.tolist(), alpha=alpha)


def tenant_result(found: TenantEvidence, config: AuditConfig) -> TenantResult:
    """Write down one tenant's findings."""
    removed = frozenset(found.removed)
    return TenantResult(
        tenant=found.tenant,
        entries=len(found.memory),
        events=tuple(_event(found, state, removed) for _, state in sorted(found.search.states.items())),
        probes=tuple(_probe(found, event, removed, config.probe_pattern) for event in found.probes),
        scores=_scores(found),
        edges=_edges(found),
        not_examined=tuple(found.search.not_examined),
    )


def _event(found: TenantEvidence, state: EventState, removed: frozenset[str]) -> EventFinding:
    event = state.event
    context = tuple(entry.entry_id for entry in found.memory.retrieve(event.query))
    after = found.checked.get(leave_out(event.event_id, "removal", "text", removed).pair_id)
    verdict, reason = _verdict(state, after)
    # Whom this event's replays had in context, or who alone brings its harm on.
    causes = [
        entry_id
        for entry_id in found.removed
        if entry_id in state.influences or (state.full is not None and entry_id in state.full.context)
    ]
    return EventFinding(
        event_id=event.event_id,
        verdict=verdict,
        query=event.query,
        output_observed=event.output,
        output_before=None if state.full is None else state.full.output,
        output_after=None if after is None else after.output,
        harm_before=None if state.full is None else state.full.harm,
        harm_after=None if after is None else after.harm,
        harm_without_memory=None if state.gate is None else state.gate.harm,
        retrieved=event.retrieved if event.retrieved is not None else context,
        retrieved_reconstructed=event.retrieved is None,
        retrieved_after=None if after is None else after.context,
        causes=tuple(sorted(causes)) if verdict in {"cleared", "not cleared"} else (),
        reason=reason,
    )


def _verdict(state: EventState, after: Outcome | None) -> tuple[Verdict, str]:
    """Judge by the replay without S; the search's own word stands only where S is not what decides."""
    if state.status not in {"open", "cleared", "not cleared"}:
        return cast("Verdict", state.status), state.reason
    if after is None or after.harm is None:
        return "not examined", "the replay without the removed set could not be judged"
    if after.harm < HARMFUL:
        return "cleared", "harm is gone on replay without the removed set"
    return "not cleared", state.reason or "harm stays on replay without the removed set"


def _probe(found: TenantEvidence, event: Event, removed: frozenset[str], pattern: str | None) -> ProbeFinding:
    before = found.checked.get(leave_out(event.event_id, "probe", "text", frozenset()).pair_id)
    after = found.checked.get(leave_out(event.event_id, "probe", "text", removed).pair_id)
    return ProbeFinding(
        event_id=event.event_id,
        query=event.query,
        kept=None if before is None or after is None else same_answer(before.output, after.output, pattern),
        output_before=None if before is None else before.output,
        output_after=None if after is None else after.output,
    )


def _scores(found: TenantEvidence) -> tuple[EntryScore, ...]:
    graph = found.tenant_graph.graph
    index = {entry.entry_id: number for number, entry in enumerate(found.memory.entries)}
    return tuple(
        EntryScore(
            entry_id=score.entry_id,
            cmis=score.cmis,
            cas=score.cas,
            cmis_normalised=score.cmis_normalised,
            cas_normalised=score.cas_normalised,
            ds=score.ds,
            rank=score.rank,
            cas_flagged=bool(graph.flagged[index[score.entry_id]]),
            removed=score.entry_id in found.removed,
            reason=found.removed.get(score.entry_id, ""),
            sufficiency_nats=_strongest(found, score.entry_id, "sufficiency_nats"),
            necessity_nats=_strongest(found, score.entry_id, "necessity_nats"),
            density=float(graph.density[index[score.entry_id]]),
        )
        for score in found.ranking
    )


def _strongest(found: TenantEvidence, entry_id: str, term: str) -> float | None:
    known = [
        value
        for state in found.search.states.values()
        if entry_id in state.influences and (value := getattr(state.influences[entry_id], term)) is not None
    ]
    return max(known) if known else None


def _edges(found: TenantEvidence) -> tuple[GraphEdge, ...]:
    graph = found.tenant_graph.graph
    ids = [entry.entry_id for entry in found.memory.entries]
    return tuple(
        GraphEdge(a=ids[i], b=ids[j], similarity=similarity, contradiction=weight)
        for (i, j), similarity, weight in zip(
            graph.neighbours.pairs.tolist(),
            graph.neighbours.similarity.tolist(),
            graph.contradiction.tolist(),
            strict=True,
        )
    )
