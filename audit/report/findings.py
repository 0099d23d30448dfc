"""Turn what an audit measured into what it found: scores, ranking, verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_audit.attribution.evidence import credit
from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.attribution.replays.ablation import Outcome, leave_out
from memory_audit.attribution.replays.probes import same_answer
from memory_audit.attribution.search.settings import WEAK_NATS
from memory_audit.counted import counted
from memory_audit.events import HARMFUL
from memory_audit.fusion import FusedScore, fuse
from memory_audit.report.confidence import p_of_event, p_of_memories
from memory_audit.result import (
    EntryScore,
    EntryText,
    EventFinding,
    GraphEdge,
    ProbeFinding,
    QuarantineCheck,
    TenantLineage,
    TenantResult,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memory_audit.attribution.leave_one_out import LeaveOneOut
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.event import EventState
    from memory_audit.attribution.search.search import SetSearch
    from memory_audit.config import AuditConfig
    from memory_audit.consistency.tenant_graph import TenantGraph
    from memory_audit.entry import Entry
    from memory_audit.events import Event, EventVerdict
    from memory_audit.lineage.descendants import Derivation
    from memory_audit.result import DescendantFinding

__all__ = ["TenantEvidence", "rank", "removal_set", "tenant_result"]

MAX_NAMED = 5
"""Memories named in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantEvidence:
    """Everything measured of one tenant."""

    tenant: str
    memory: RankedMemory
    tenant_graph: TenantGraph
    search: SetSearch | LeaveOneOut
    probes: tuple[Event, ...] = ()
    derivation: Derivation | None = None
    ranking: tuple[FusedScore, ...] = ()
    removal: RemovalSet = field(default_factory=RemovalSet)
    """S, as it was chosen."""

    descendants: tuple[DescendantFinding, ...] = ()
    """Of S."""

    checked: Mapping[str, Outcome] = field(default_factory=dict)
    """Replays without S, by pair id."""

    left_out: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Memories that did not fit into the backbone's context: entry id to the pair ids of replays without them."""

    @property
    def purged(self) -> frozenset[str]:
        """What is gone where the quarantined go, too."""
        return self.removal.with_quarantined().ids


def removal_set(
    attributed: Mapping[str, str], descendants: Collection[DescendantFinding], suspected: Mapping[str, str]
) -> RemovalSet:
    """Return S: what is attributed, what of its descendants goes or is quarantined, and what is suspected besides."""
    derived, quarantined = (
        {item.entry_id: item.reason for item in descendants if item.proposal == proposal}
        for proposal in ("remove", "quarantine")
    )
    named = attributed.keys() | derived.keys() | quarantined.keys()
    return RemovalSet(
        attributed=dict(sorted(attributed.items())), derived=derived, quarantined=quarantined,
        suspected={name: why for name, why in sorted(suspected.items()) if name not in named},
    )  # fmt: skip


def rank(
    memory: RankedMemory,
    graph: TenantGraph,
    influence: Mapping[str, float],
    alpha: float,
    named: Collection[str] = (),
) -> tuple[FusedScore, ...]:
    """Fuse influence with CAS (eq. 10), over the entries of which either is known, and others that are named."""
    ids = memory.in_log_order({*graph.compared(), *influence, *named})
    return fuse(ids, [influence.get(name) for name in ids], [graph.cas(name) for name in ids], alpha=alpha)


def tenant_result(found: TenantEvidence, config: AuditConfig) -> TenantResult:
    """Write down one tenant's findings."""
    removed, attributed = found.removal.ids, frozenset(found.removal.attributed)
    return TenantResult(
        tenant=found.tenant,
        entries=len(found.memory),
        events=tuple(_event(found, state, removed, attributed) for _, state in sorted(found.search.states.items())),
        probes=_probes(found, removed, config),
        scores=_scores(found),
        removal=found.removal,
        edges=_edges(found),
        not_examined=(*found.search.not_examined, *_too_long(found)),
        beyond_budget=found.search.beyond_budget,
        lineage=_lineage(found, config),
        usual_cas=found.tenant_graph.usual,
        texts=tuple(_text(found.memory.entry(entry_id)) for entry_id in sorted(found.purged)),
    )


def _text(entry: Entry) -> EntryText:
    return EntryText(
        entry_id=entry.entry_id, request=entry.request, response=entry.response, principal=entry.principal,
        source=entry.source,
    )  # fmt: skip


def _too_long(found: TenantEvidence) -> list[str]:
    """Say in one line what no replay could show, those left out most often first."""
    if not found.left_out:
        return []
    names = sorted(found.left_out, key=lambda name: (-len(found.left_out[name]), name))
    listed = ", ".join(name[:40] for name in names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    replays = counted(len(set().union(*found.left_out.values())), "replay")
    what = counted(len(names), "memory")
    return [f"{what} too long for the backbone's context, left out of {replays}: {listed}{more}"]


def _lineage(found: TenantEvidence, config: AuditConfig) -> TenantLineage | None:
    derivation = found.derivation
    if derivation is None:
        return None
    attributed, removed, purged = frozenset(found.removal.attributed), found.removal.ids, found.purged
    probes = {
        gone: {probe.event_id: probe.kept for probe in _probes(found, gone, config)}
        for gone in (attributed, removed, purged)
    }

    def lost(fewer: frozenset[str], more: frozenset[str]) -> tuple[str, ...]:
        return tuple(name for name, kept in probes[fewer].items() if kept and probes[more][name] is False)

    quarantine = None
    if found.removal.quarantined:
        after = {
            event_id: found.checked.get(leave_out(event_id, "removal", "text", purged).pair_id)
            for event_id in sorted(found.search.states)
        }
        quarantine = QuarantineCheck(
            harmful=tuple(
                event_id
                for event_id, outcome in after.items()
                if outcome is not None and outcome.harm is not None and outcome.harm >= HARMFUL
            ),
            probes_lost=lost(removed, purged),
        )
    return TenantLineage(
        tau=config.tau,
        edges=derivation.signed.edges,
        estimated_edges=derivation.estimated_edges,
        entries=derivation.trust(),
        descendants=found.descendants,
        probes_lost=lost(attributed, removed),
        quarantine=quarantine,
    )


def _probes(found: TenantEvidence, removed: frozenset[str], config: AuditConfig) -> tuple[ProbeFinding, ...]:
    return tuple(_probe(found, event, removed, config.probe_pattern) for event in found.probes)


def _event(
    found: TenantEvidence, state: EventState, removed: frozenset[str], attributed: frozenset[str]
) -> EventFinding:
    event = state.event
    after = found.checked.get(leave_out(event.event_id, "removal", "text", removed).pair_id)
    verdict, reason = _verdict(state, after)
    gone = [entry_id for entry_id in event.retrieved or () if entry_id not in found.memory]
    if gone:
        reason += f"; of the memories that it used {len(gone)} {'was' if len(gone) == 1 else 'were'} removed since"
    # Of a large S an event measured or saw few.
    seen = state.influences.keys() | {entry_id for context in state.replays.by_context for entry_id in context}
    causes = [entry_id for entry_id in attributed & seen if _is_cause(found, state, entry_id)]
    return EventFinding(
        event_id=event.event_id,
        verdict=verdict,
        query=event.query,
        output_observed=event.output,
        output_before=None if state.full is None else state.full.output,
        output_after=None if after is None else after.output,
        harm_before=None if state.full is None else state.full.harm,
        harm_after=None if after is None else after.harm,
        harm_without_memory=None if state.replays.without_memory is None else state.replays.without_memory.harm,
        retrieved=event.retrieved if event.retrieved is not None else found.memory.context(event.query),
        retrieved_reconstructed=event.retrieved is None,
        retrieved_after=None if after is None else after.context,
        causes=tuple(sorted(causes)) if verdict in {"cleared", "contributed", "not cleared"} else (),
        reason=reason,
        p_value=p_of_event(found.search, state),
    )


def _is_cause(found: TenantEvidence, state: EventState, entry_id: str) -> bool:
    """Tell whether the replays of one event are evidence on a member of S that is not there by mere descent.

    They are none on a member that no replay measured or showed.

    What was only a control memory at this event is no cause of it, nor is what is in S by rank alone.
    """
    if state.alone(entry_id) >= WEAK_NATS:
        return True
    if not any(entry_id in context for context in state.replays.by_context):
        return False
    influence, attributed = state.influences.get(entry_id), entry_id in found.search.by_evidence
    graded = None if influence is None else credit(influence)
    if influence is None or (graded is None and influence.cmis is None):
        return attributed  # at another event, so this one skipped it
    if influence.cmis is not None and influence.cmis > 0:
        return True
    return graded is not None and (graded > 0 if attributed else graded >= WEAK_NATS)


def _verdict(state: EventState, after: Outcome | None) -> tuple[EventVerdict, str]:
    """Judge by the replay without S; the search's own word stands only where S is not what decides."""
    settled = state.settled
    if settled is not None and not settled.rests_on_replay:
        return settled.verdict, settled.reason
    if after is None or after.harm is None:
        return "not examined", "the replay without the removed set could not be judged"
    if after.harm < HARMFUL:
        return "cleared", "harm is gone on replay without the removed set"
    # The search may have cleared it without another set: a budget cuts the ranking shorter.
    told = "" if state.status == "cleared" else state.reason
    verdict: EventVerdict = "contributed" if state.status == "contributed" else "not cleared"
    return verdict, told or "harm stays on replay without the removed set"


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
    graph, usual = found.tenant_graph, found.tenant_graph.usual
    sufficiency, necessity = _strongest(found, "sufficiency_nats"), _strongest(found, "necessity_nats")
    p_values = p_of_memories(found.search)
    return tuple(
        EntryScore(
            entry_id=score.entry_id,
            cmis=single(score.cmis),
            cas=single(score.cas),
            cmis_normalised=single(score.cmis_normalised),
            cas_normalised=single(score.cas_normalised),
            ds=single(score.ds),
            rank=score.rank,
            cas_flagged=None if score.cas is None or usual is None else score.cas > usual.unusual,
            sufficiency_nats=single(sufficiency.get(score.entry_id)),
            necessity_nats=single(necessity.get(score.entry_id)),
            density=single(graph.density(score.entry_id)),
            p_value=single(p_values.get(score.entry_id)),
        )
        for score in found.ranking
    )


def _strongest(found: TenantEvidence, term: str) -> Mapping[str, float]:
    """Return the greatest value of one term over all events, by entry id; entries of which none is known are absent."""
    greatest: dict[str, float] = {}
    for state in found.search.states.values():
        for entry_id, influence in state.influences.items():
            value = getattr(influence, term)
            if value is not None:
                greatest[entry_id] = max(value, greatest.get(entry_id, value))
    return greatest


def _edges(found: TenantEvidence) -> tuple[GraphEdge, ...]:
    return tuple(
        GraphEdge(a=a, b=b, similarity=single(similarity), contradiction=single(weight))
        for a, b, similarity, weight in found.tenant_graph.edges()
    )
