"""The whole audit on one screen: attribute, consistency, fuse, choose S, check S, report.

Memory is never changed here: every event is judged against the same verified snapshot (batch protocol, paper sec. 5).
All tenants of a request go through each round together, so that many small ones keep a backbone busy as a large one
does; `memory_audit.jobs.run.groups` says how many these are. What a run learns is on disk as it arrives (`RunFolder`);
started again, it asks only what is missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from memory_audit.attribution.leave_one_out import LeaveOneOut
from memory_audit.attribution.replays.ablation import Ablation, leave_out
from memory_audit.attribution.replays.retrieval import RankedMemory, dense_ranker, levenshtein_ranker
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import SearchSettings
from memory_audit.attribution.trace import SearchLog
from memory_audit.consistency.resemblance import Resemblance
from memory_audit.fusion import choose_budget
from memory_audit.jobs.run.batches import pieces
from memory_audit.jobs.run.embeddings import embed_texts, vectors_of
from memory_audit.jobs.run.graphs import consistency_graphs, extend_graphs
from memory_audit.jobs.run.replays import Replayer
from memory_audit.jobs.run.run_findings import PART_TENANTS, write_part
from memory_audit.lineage.descendants import derivation_of
from memory_audit.provenance import durable
from memory_audit.report.confidence import calibrated
from memory_audit.report.findings import TenantEvidence, rank, removal_set, tenant_result
from memory_audit.report.tables import FOLDER
from memory_audit.result import AuditResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from memory_audit.attribution.replays.harm import HarmScorer
    from memory_audit.attribution.trace import Step
    from memory_audit.config import AuditConfig
    from memory_audit.consistency.tenant_graph import TenantGraph
    from memory_audit.entry import Entry
    from memory_audit.events import Event
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.graph.graph_folder import GraphFolder
    from memory_audit.jobs.run.run_folder import RunFolder
    from memory_audit.lineage.descendants import Derivation
    from memory_audit.lineage.edges_file import EstimatedEdge
    from memory_audit.request import AuditRequest, TenantEvents
    from memory_audit.result import TenantSummary

__all__ = ["audit_memory", "most_checks", "retrieval_over", "run_searches", "search_settings", "searched_texts"]


def audit_memory(  # noqa: PLR0913 - the parts of an audit
    request: AuditRequest,
    executor: Executor,
    run: RunFolder,
    *,
    started_ms: int,
    log: SearchLog | None = None,
    limits: Mapping[str, int] | None = None,
    stored: GraphFolder | None = None,
) -> AuditResult:
    """Audit one verified snapshot against its events.

    Args:
        request: What is asked.
        executor: Where models answer.
        run: What is known; what is learnt is kept there.
        started_ms: When the run was first started, Unix milliseconds.
        log: What the steps of the search are told to; None is a new one.
        limits: Tenant to the most replays of its search and final check; None is no limit.
        stored: Whole graphs that were made beforehand.

    Raises:
        IncompleteError: the run stopped part-way; start it again to continue.
    """
    snapshot, config, by_tenant = request.snapshot, request.config, request.by_tenant
    replayer = Replayer(request, executor, run)

    stores = {tenant: request.entries(tenant) for tenant in by_tenant}
    embed_texts(searched_texts(stores, by_tenant, config), executor, run)
    graphs = consistency_graphs(stores, config, executor, run, stored)
    estimated: defaultdict[str, list[EstimatedEdge]] = defaultdict(list)
    for edge in () if request.edges is None else request.edges.edges:
        estimated[edge.tenant].append(edge)
    # A budget names how many entries go: with one, descendants are quarantined at most.
    lesser = config.budget is not None and config.descendants == "remove"
    log = SearchLog() if log is None else log
    evidence: dict[str, TenantEvidence] = {}
    for tenant, events in by_tenant.items():
        memory = retrieval_over(stores[tenant], events, config, run)
        derivation = derivation_of(
            snapshot, tenant, trust=config.trust, tau=config.tau, estimated=estimated[tenant],
            policy="quarantine" if lesser else config.descendants,
        )  # fmt: skip
        settings = search_settings(request)
        if limits is not None:
            most = limits[tenant] - most_checks(events)
            settings = replace(settings, max_replays=min(most, most if (own := config.max_replays) is None else own))
        search = _attribution(
            memory, events.harmful, graphs[tenant], derivation, config, settings, replayer.scorer, log.of(tenant)
        )  # fmt: skip
        evidence[tenant] = TenantEvidence(
            tenant=tenant, memory=memory, tenant_graph=graphs[tenant], search=search, probes=events.probes,
            derivation=derivation,
        )  # fmt: skip

    run_searches(evidence, replayer, partial(extend_graphs, executor=executor, run=run))
    evidence = {tenant: _chosen(found, config) for tenant, found in evidence.items()}
    evidence = _checked(evidence, replayer)
    run.flush()
    durable.ensure_folder(run.path / FOLDER)
    tenants: list[TenantSummary] = []
    files: dict[str, str] = {}
    for names in pieces(sorted(evidence), PART_TENANTS):
        found = [replace(tenant_result(evidence[name], config), cost=_cost(replayer, evidence[name])) for name in names]
        summaries, digests = write_part(found, run.write)
        tenants += summaries
        files |= digests
    return AuditResult(
        run_id=request.run_id,
        store=snapshot.store_id,
        snapshot_version=snapshot.version,
        snapshot_digest=snapshot.digest,
        started_ms=started_ms,
        seconds=0.0,  # of this start and earlier ones: whoever ends the run knows
        config={name: str(value) for name, value in config.canonical().items()},
        models=dict(run.models),
        counters=_added(tenants),
        tenants=tuple(tenants),
        files=files,
        calibration=calibrated(request.calibration, search_settings(request)),
    )


def run_searches(
    evidence: Mapping[str, TenantEvidence],
    replayer: Replayer,
    extend: Callable[[Mapping[TenantGraph, Collection[str]]], None],
) -> None:
    """Run rounds over all searches, by tenant or whatever names them, until every one is over.

    Args:
        evidence: The searches.
        replayer: Answers what they ask.
        extend: Makes the neighbourhoods of entries known, by graph.
    """
    while True:
        rounds = {tenant: found.search.plan() for tenant, found in evidence.items()}
        awaited: dict[TenantGraph, set[str]] = {}
        for found in evidence.values():
            if names := found.search.awaited:
                awaited.setdefault(found.tenant_graph, set()).update(names)
        if awaited:
            extend(awaited)
        elif not any(rounds.values()):
            break
        phases = sorted({found.search.phase for tenant, found in evidence.items() if rounds[tenant]})
        outcomes = replayer.run(f"replaying events ({', '.join(phases)})", rounds, evidence)
        for tenant, ablations in rounds.items():
            if ablations:
                evidence[tenant].search.observe([outcomes[ablation.pair_id] for ablation in ablations])


def searched_texts(
    stores: Mapping[str, Sequence[Entry]], events: Mapping[str, TenantEvents], config: AuditConfig
) -> Iterator[str]:
    """Yield what retrieval compares by embedding: what memories answer to, and what is asked."""
    if config.retrieval == "dense":
        for tenant, entries in stores.items():
            yield from (entry.matched for entry in entries)
            yield from (event.query for event in events[tenant])


def retrieval_over(
    entries: Sequence[Entry], events: Iterable[Event], config: AuditConfig, run: RunFolder
) -> RankedMemory:
    """Return retrieval as the configuration has it, over entries whose texts are embedded."""
    matched = [entry.matched for entry in entries]
    if config.retrieval == "levenshtein":
        return RankedMemory(entries, levenshtein_ranker(matched), config.k)
    queries = sorted({event.query for event in events})
    by_query = dict(zip(queries, vectors_of(queries, run), strict=True))
    return RankedMemory(entries, dense_ranker(vectors_of(matched, run), by_query), config.k)


def _attribution(  # noqa: PLR0913, PLR0917 - what is searched, and three kinds of evidence
    memory: RankedMemory,
    events: Sequence[Event],
    graph: TenantGraph,
    derivation: Derivation | None,
    config: AuditConfig,
    settings: SearchSettings,
    scorer: HarmScorer,
    tell: Callable[[Step], None],
) -> SetSearch | LeaveOneOut:
    if config.attribution == "loo":

        def ranking(influence: Mapping[str, float]) -> list[str]:
            return [score.entry_id for score in rank(memory, graph, influence, config.alpha)]

        return LeaveOneOut(
            memory, events, flip_nats=config.attribution_nats + config.consistent_extra_nats,
            rank=None if config.budget is not None else ranking, max_replays=config.max_replays, tell=tell,
        )  # fmt: skip

    def closure(attributed: Collection[str]) -> dict[str, str]:
        found = () if derivation is None else derivation.closure(attributed)
        return {item.entry_id: item.reason for item in found if item.proposal == "remove"}

    return SetSearch(
        memory, events, settings, resembles=Resemblance(graph), fits_in=graph.fits_in, scorer=scorer,
        closure=closure, tell=tell,
    )  # fmt: skip


def search_settings(request: AuditRequest) -> SearchSettings:
    """Return what a request tells its searches."""
    config, file = request.config, request.calibration
    return SearchSettings(
        attribution_nats=config.attribution_nats, consistent_extra_nats=config.consistent_extra_nats,
        samples=config.samples, max_replays=config.max_replays, significance=config.significance,
        calibration=None if file is None else file.calibration,
    )  # fmt: skip


def _chosen(found: TenantEvidence, config: AuditConfig) -> TenantEvidence:
    """Rank the entries of one tenant, and choose S."""
    ranked = partial(rank, found.memory, found.tenant_graph, found.search.influence, config.alpha)
    attributed: Mapping[str, str] = found.search.removal.attributed
    if config.budget is not None:
        why = f"among the {config.budget} highest scores"
        attributed = dict.fromkeys(choose_budget(ranked(), config.budget), why)
    descendants = () if found.derivation is None else found.derivation.closure(attributed)
    removal = removal_set(attributed, descendants, found.search.removal.suspected)
    ranking = ranked(removal.with_quarantined().with_suspected().ids)
    return replace(found, ranking=ranking, descendants=descendants, removal=removal)


def most_checks(events: TenantEvents) -> int:
    """Return how many replays the final check of a tenant takes at most.

    Of each event without S, and without what is quarantined too; of each probe also with the whole store, and without
    the attributed entries alone.
    """
    return 2 * len(events.harmful) + 4 * len(events.probes)


def _checked(evidence: Mapping[str, TenantEvidence], replayer: Replayer) -> dict[str, TenantEvidence]:
    """Replay every event and every probe without S: the verdict is always a full replay.

    Descendants have a price of their own: probes are also replayed without the attributed entries alone, and events and
    probes without the quarantined ones too.
    """
    rounds: dict[str, list[Ablation]] = {}
    for tenant, found in evidence.items():
        removed, attributed, purged = found.removal.ids, frozenset(found.removal.attributed), found.purged
        asked = rounds[tenant] = []
        for event_id, state in found.search.states.items():
            if state.full is not None:
                asked.extend(
                    leave_out(event_id, "removal", "text", gone) for gone in dict.fromkeys((removed, purged))
                )  # fmt: skip
        for event in found.probes:
            asked.extend(
                leave_out(event.event_id, "probe", "text", gone)
                for gone in dict.fromkeys((frozenset[str](), removed, attributed, purged))
            )
    outcomes = replayer.run("checking the removed set", rounds, evidence)
    return {
        tenant: replace(
            found, checked={ablation.pair_id: outcomes[ablation.pair_id] for ablation in rounds[tenant]},
            left_out=replayer.left_out[tenant],
        )
        for tenant, found in evidence.items()
    }  # fmt: skip


def _added(tenants: Iterable[TenantSummary]) -> dict[str, int]:
    counters = Counter({"nli_pairs": 0})
    for tenant in tenants:
        counters.update(tenant.cost)
    return dict(sorted(counters.items()))


def _cost(replayer: Replayer, found: TenantEvidence) -> dict[str, int]:
    return {**dict(sorted(replayer.costs[found.tenant].items())), "nli_pairs": found.tenant_graph.pairs}
