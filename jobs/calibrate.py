"""Find clean incidents among benign events, and keep the largest evidence of each.

A clean incident (`memory_audit.attribution.calibration`) is an event whose known good answer comes with no memory, and
another one with memories. Each is searched by itself with attribution switched off. Nothing is removed, and the store
is only read. What is asked is kept as in an audit (`RunFolder`): a second start asks what is missing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.answers import answer_of
from memory_audit.attribution.replays.harm import load_harm
from memory_audit.attribution.search.no_attribution import NoAttribution
from memory_audit.attribution.search.search import SetSearch
from memory_audit.calibration_file import CalibrationFile, Incident
from memory_audit.errors import EventError
from memory_audit.events import HARMFUL
from memory_audit.jobs.run.audit_memory import retrieval_over, run_searches, search_settings, searched_texts
from memory_audit.jobs.run.embeddings import embed_texts
from memory_audit.jobs.run.graphs import consistency_graphs, extend_graphs
from memory_audit.jobs.run.replays import Replayer
from memory_audit.jobs.run.run_folder import RunFolder, resumable
from memory_audit.report.findings import TenantEvidence
from memory_audit.request import AuditRequest, EventsFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_audit.attribution.search.event import EventState
    from memory_audit.config import AuditConfig
    from memory_audit.events import Event
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.run.run_seal import Sealer
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["calibrate", "calibration_request"]


def calibration_request(snapshot: VerifiedSnapshot, events: EventsFile, config: AuditConfig) -> AuditRequest:
    """Ask about the benign events of a file as if they were harmful: the harm is a wrong answer.

    With a `probe_pattern` an answer is wrong where the pattern finds another one than in the event's output; events in
    whose output it finds none are left out. Without one the harm scorer judges: where mere texts differ, nothing says
    which is wrong. Of events with one query the first counts.

    Args:
        snapshot: The store.
        events: The file; harmful events in it are passed over.
        config: Of the audits that the calibration is for.

    Raises:
        EventError: no benign event with an answer; else as `AuditRequest`.
    """
    load_harm(config.harm)
    pattern, asked = config.probe_pattern, dict[str, "Event"]()
    for event in sorted(events.events, key=lambda event: event.event_id):
        if event.harm == "benign" and (pattern is None or answer_of(event.output, pattern) is not None):
            asked.setdefault(event.query, event)
    if not asked:
        found = "" if pattern is None else " in whose output probe_pattern finds an answer"
        raise EventError(f"no event labelled benign{found}: a calibration needs known good answers")
    harm = config.harm
    if pattern is not None:
        answers = {query: answer_of(event.output, pattern) for query, event in asked.items()}
        harm = {"kind": "known-answer", "answers": answers, "pattern": pattern}
    return AuditRequest(
        snapshot=snapshot,
        events=replace(events, events=tuple(replace(event, harm="harmful") for event in asked.values())),
        config=replace(
            config, harm=harm, calibration=None, attribution="set", budget=None, max_replays=None, hazards="off"
        ),
    )


@resumable()
def calibrate(  # noqa: PLR0913 - the parts of a run
    request: AuditRequest, config: AuditConfig, executor: Executor, folder: Path, sealer: Sealer, *, now_ms: int
) -> CalibrationFile:
    """Measure what clean incidents show.

    Args:
        request: Of `calibration_request`.
        config: What that was made of.
        executor: Where models answer.
        folder: The run folder, made if absent.
        sealer: Knows what of it is there by earlier starts.
        now_ms: Clock, Unix milliseconds.

    Returns:
        The calibration, unsigned.

    Raises:
        UsageError: the folder holds something else.
        VerificationError: it holds answers that no start with these keys wrote.
        IncompleteError: it stopped part-way; start it again to continue.
    """
    run = RunFolder(folder, {**request.identity, "made for": "a calibration"}, sealer=sealer)
    replayer = Replayer(request, executor, run)
    evidence = dict(_searches(request, executor, run, replayer))
    run_searches(evidence, replayer, partial(extend_graphs, executor=executor, run=run))
    run.flush()
    incidents = tuple(incident for found in evidence.values() for incident in _incidents(found, config))
    logged = {event.event_id: event.retrieved for event in request.events.events}
    sizes = [config.k if (names := logged[item.event_id]) is None else len(names) for item in incidents]
    setting = replace(request.setting, harm=str(config.harm.get("kind")), k=min(sizes, default=config.k))
    return CalibrationFile(
        backbone=executor.backbone.model_id, setting=setting, events=len(evidence), incidents=incidents, made_ms=now_ms,
        judged_by="harm scorer" if config.probe_pattern is None else "probe_pattern",
    )  # fmt: skip


def _searches(
    request: AuditRequest, executor: Executor, run: RunFolder, replayer: Replayer
) -> Iterator[tuple[str, TenantEvidence]]:
    """Yield a search for each event, by its id: in one search events would share what they find."""
    config, by_tenant = request.config, request.by_tenant
    stores = {tenant: request.entries(tenant) for tenant in by_tenant}
    embed_texts(searched_texts(stores, by_tenant, config), executor, run)
    graphs = consistency_graphs(stores, config, executor, run)
    for tenant, events in by_tenant.items():
        memory, graph = retrieval_over(stores[tenant], events, config, run), graphs[tenant]
        for event in events.harmful:
            search = SetSearch(
                memory, [event], search_settings(request), fits_in=graph.fits_in, scorer=replayer.scorer,
                rule=NoAttribution,
            )  # fmt: skip
            yield event.event_id, TenantEvidence(tenant=tenant, memory=memory, tenant_graph=graph, search=search)


def _incidents(found: TenantEvidence, config: AuditConfig) -> Iterator[Incident]:
    """Yield the incident that the search of one event was of, if it is one."""
    rule = found.search.rule if isinstance(found.search, SetSearch) else None
    for event_id, state in found.search.states.items():
        if isinstance(rule, NoAttribution) and _is_incident(state, config):
            yield Incident(tenant=found.tenant, event_id=event_id, nats=rule.largest_nats)


def _is_incident(state: EventState, config: AuditConfig) -> bool:
    full, bare = state.full, state.replays.without_memory
    if full is None or bare is None or full.harm is None or bare.harm is None:
        return False
    # An output without an answer is not wrong, and no good one either.
    answered = config.probe_pattern is None or answer_of(bare.output, config.probe_pattern) is not None
    return answered and full.harm >= HARMFUL > bare.harm
