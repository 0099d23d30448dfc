"""The whole audit on one screen: attribute, consistency, fuse, choose S, check S, report.

Memory is never changed here: every event is judged against the same verified snapshot (batch protocol, paper sec. 5).
All tenants go through each round together, so that a round is one map over the cluster. What a run learns is on disk
as it arrives (`RunFolder`); started again, it asks only what is missing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from memory_audit.attribution.prefix import PrefixChoice
from memory_audit.attribution.replays.ablation import leave_out
from memory_audit.attribution.replays.retrieval import RankedMemory, dense_ranker, levenshtein_ranker
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.state import SearchSettings
from memory_audit.consistency.resemblance import Resemblance
from memory_audit.fusion import choose_budget
from memory_audit.jobs.run.embeddings import embed_texts, vectors_of
from memory_audit.jobs.run.graphs import consistency_graphs
from memory_audit.jobs.run.replays import Replayer
from memory_audit.jobs.run.run_folder import resumable
from memory_audit.report.descendants import derivation_of
from memory_audit.report.findings import TenantEvidence, influence_scores, rank, tenant_result
from memory_audit.result import AuditResult, text_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from memory_audit.attribution.replays.ablation import Ablation
    from memory_audit.config import AuditConfig
    from memory_audit.entry import Entry
    from memory_audit.events import Event
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.run.run_folder import RunFolder
    from memory_audit.lineage.edges_file import EstimatedEdge
    from memory_audit.request import AuditRequest, TenantEvents

__all__ = ["audit_memory"]

PREFIX_SHARE = 0.5
"""Longest prefix of the ranking that the plain method may remove: beyond half, the store is not repaired but lost."""


@resumable()
def audit_memory(
    request: AuditRequest,
    executor: Executor,
    run: RunFolder,
    *,
    started_ms: int,
    elapsed_s: Callable[[], float] = lambda: 0.0,
) -> AuditResult:
    """Audit one verified snapshot against its events.

    Args:
        request: What is asked.
        executor: Where models answer.
        run: What is known; what is learnt is kept there.
        started_ms: When the run was first started, Unix milliseconds.
        elapsed_s: Seconds that the run took, read at its end.

    Raises:
        IncompleteError: the run stopped part-way; start it again to continue.
    """
    snapshot, config, by_tenant = request.snapshot, request.config, request.by_tenant
    replayer = Replayer(request, executor, run)

    stores = {tenant: snapshot.entries(tenant) for tenant in by_tenant}
    embed_texts(_texts(stores, by_tenant, config), executor, run)
    graphs = consistency_graphs(stores, config, executor, run)
    estimated: defaultdict[str, list[EstimatedEdge]] = defaultdict(list)
    for edge in () if request.edges is None else request.edges.edges:
        estimated[edge.tenant].append(edge)
    evidence: dict[str, TenantEvidence] = {}
    for tenant, events in by_tenant.items():
        entries, tenant_graph = stores[tenant], graphs[tenant]
        memory = _retrieval(entries, events, config, run)
        settings = SearchSettings(
            attribution=config.attribution, attribution_nats=config.attribution_nats,
            consistent_extra_nats=config.consistent_extra_nats, samples=config.samples, max_replays=config.max_replays,
        )  # fmt: skip
        names = [entry.entry_id for entry in entries]
        search = SetSearch(
            memory,
            events.harmful,
            settings,
            resembles=Resemblance(entries, tenant_graph) if config.attribution == "set" else None,
            inconsistency=dict(zip(names, tenant_graph.graph.cas.tolist(), strict=True)),
            scorer=replayer.scorer,
        )
        evidence[tenant] = TenantEvidence(
            tenant=tenant, memory=memory, tenant_graph=tenant_graph, search=search, probes=events.probes,
            derivation=derivation_of(snapshot, tenant, config, estimated.get(tenant, ())),
        )  # fmt: skip

    _search(evidence, replayer)
    # What moves up into the places of descendants is searched like any other, so closure and search take turns.
    while config.attribution == "set" and any([found.take_descendants() for found in evidence.values()]):  # noqa: C419
        _search(evidence, replayer)

    for found in evidence.values():
        found.ranking = rank(found, influence_scores(found), config.alpha)
        found.removed = _choose(found, config, replayer)
        found.close()
    _check(evidence, replayer)
    run.flush()
    return AuditResult(
        run_id=request.run_id,
        store=snapshot.store_id,
        snapshot_version=snapshot.version,
        snapshot_digest=snapshot.digest,
        started_ms=started_ms,
        seconds=round(elapsed_s(), 3),
        config={name: str(value) for name, value in config.canonical().items()},
        models=dict(run.models),
        counters=dict(sorted({**replayer.counters, "nli_pairs": sum(_pairs(evidence))}.items())),
        tenants=tuple(tenant_result(found, config) for _, found in sorted(evidence.items())),
        entries_text={
            text_name(tenant, entry_id): {
                "request": entry.request, "response": entry.response, "principal": entry.principal,
                "source": entry.source,
            }
            for tenant, found in sorted(evidence.items())
            for entry_id in sorted(found.removed.keys() | found.quarantined)
            for entry in (found.memory.entry(entry_id),)
        },
    )  # fmt: skip


def _search(evidence: Mapping[str, TenantEvidence], replayer: Replayer) -> None:
    """Run rounds over all tenants until every search is over."""
    while rounds := {tenant: found.search.plan() for tenant, found in evidence.items()}:
        if not any(rounds.values()):
            break
        phases = sorted({found.search.phase for tenant, found in evidence.items() if rounds[tenant]})
        outcomes = replayer.run(f"replaying events ({', '.join(phases)})", rounds, evidence)
        for tenant, ablations in rounds.items():
            if ablations:
                evidence[tenant].search.observe([outcomes[ablation.pair_id] for ablation in ablations])


def _texts(
    stores: Mapping[str, Sequence[Entry]], events: Mapping[str, TenantEvents], config: AuditConfig
) -> Iterator[str]:
    """Yield all that is compared by embedding: memories, what they answer and, for dense retrieval, what was asked."""
    for tenant, entries in stores.items():
        for entry in entries:
            yield from (entry.text, entry.response)
            if config.retrieval == "dense":
                yield entry.request
        if config.retrieval == "dense":
            yield from (event.query for event in events[tenant])


def _retrieval(entries: Sequence[Entry], events: Iterable[Event], config: AuditConfig, run: RunFolder) -> RankedMemory:
    requests = [entry.request for entry in entries]
    if config.retrieval == "levenshtein":
        return RankedMemory(entries, levenshtein_ranker(requests), config.k)
    queries = sorted({event.query for event in events})
    by_query = dict(zip(queries, vectors_of(queries, run), strict=True))
    return RankedMemory(entries, dense_ranker(vectors_of(requests, run), by_query), config.k)


def _choose(found: TenantEvidence, config: AuditConfig, replayer: Replayer) -> dict[str, str]:
    """Choose S for one tenant; entry id to reason."""
    ranking = [score.entry_id for score in found.ranking]
    if config.budget is not None:
        return dict.fromkeys(choose_budget(found.ranking, config.budget), f"among the {config.budget} highest scores")
    if config.attribution == "set":
        return {name: why for name, why in found.search.removed.items() if name not in found.derived}
    choice = PrefixChoice(ranking, found.search.states.values(), limit=int(PREFIX_SHARE * len(ranking)))
    while ablations := choice.plan():
        outcomes = replayer.run("choosing S", {found.tenant: ablations}, {found.tenant: found})
        choice.observe([outcomes[ablation.pair_id] for ablation in ablations])
    return dict.fromkeys(choice.removed, "in the smallest prefix of the ranking that ends the harm")


def _check(evidence: Mapping[str, TenantEvidence], replayer: Replayer) -> None:
    """Replay every event and every probe without S: the verdict is always a full replay.

    Descendants have a price of their own: probes are also replayed without the attributed entries alone, and events and
    probes without the quarantined ones too.
    """
    rounds: dict[str, list[Ablation]] = {}
    for tenant, found in evidence.items():
        removed = frozenset(found.removed)
        asked = rounds.setdefault(tenant, [])
        purged = removed | found.quarantined
        for event_id, state in found.search.states.items():
            if state.full is not None:
                asked.extend(
                    leave_out(event_id, "removal", "text", gone) for gone in dict.fromkeys((removed, purged))
                )  # fmt: skip
        for event in found.probes:
            asked.extend(
                leave_out(event.event_id, "probe", "text", gone)
                for gone in dict.fromkeys((frozenset[str](), removed, found.attributed, purged))
            )
    outcomes = replayer.run("checking the removed set", rounds, evidence)
    for tenant, found in evidence.items():
        found.checked = {ablation.pair_id: outcomes[ablation.pair_id] for ablation in rounds[tenant]}


def _pairs(evidence: Mapping[str, TenantEvidence]) -> Iterable[int]:
    return (len(found.tenant_graph.graph.neighbours.pairs) for found in evidence.values())
