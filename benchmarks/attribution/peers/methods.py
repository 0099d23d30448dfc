"""What a trial gives, and the methods that ask the backbone through this project's executor.

Ours, plain leave-one-out, and random half ablations.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.attribution.peers.metered import Cost
from benchmarks.attribution.peers.searching import GROWING, Searched, answer, run_searches
from benchmarks.attribution.peers.verdicts import Attribution
from memory_audit.attribution.replays.ablation import keep_only, leave_out
from memory_audit.attribution.search.points.divergence import first_divergence
from memory_audit.attribution.search.search import SetSearch
from memory_audit.attribution.search.settings import SearchSettings
from memory_audit.consistency.resemblance import Resemblance
from memory_audit.consistency.tenant_graph import TenantGraph
from memory_audit.events import HARMFUL
from memory_audit.generation import Completion, GenerationRequest
from memory_audit.jobs.executors.replay_group import Program, ReplayQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from benchmarks.attribution.peers.likelihood import Likelihood
    from benchmarks.attribution.peers.metered import MeteredBackbone
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.config import AuditConfig
    from memory_audit.entry import Entry
    from memory_audit.events import Event
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.watching.progress import Reporter
    from memory_audit.models.protocols import Generator

__all__ = [
    "Reading", "Trial", "half_ablations", "lasso", "leave_one_out", "measured", "reading_with", "resemblance",
    "set_attribution",
]  # fmt: skip

DRAWS = 32
"""Random halves drawn per event; equal ones are asked once, so with k memories at most 2^k are."""

RECORDED_PHASES = {"reproduction": "gate", "harm span": "substance", "divergence": "points"}
"""Phases of the search by the names that result files hold."""

LASSO_ALPHA = 0.01
"""ContextCite's own penalty, on standardised masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What every method is given: a store, its harmful events, and where the backbone is. No labels."""

    executor: Executor
    config: AuditConfig
    memory: RankedMemory
    events: Sequence[Event]
    reporter: Reporter

    @property
    def program(self) -> Program:
        """The agent and the harm scorer."""
        return Program.of(self.config.agent, self.config.harm, self.config.seed)


Reading = Callable[[Sequence[GenerationRequest]], Sequence[Completion]]
"""A model that reads: all requests are asked together, and answered in their order."""


def reading_with(executor: Executor, generator: Generator) -> Reading:
    """Let a model read on the executor's event loop, to which it belongs from then on."""

    async def answers(requests: Sequence[GenerationRequest]) -> Sequence[Completion]:
        return await asyncio.gather(*map(generator.generate, requests))

    return lambda requests: executor.run(answers(requests))


def measured(
    method: Callable[[], Attribution],
    meters: Sequence[MeteredBackbone],
    likelihoods: Sequence[Likelihood] = (),
    *,
    fresh: bool,
) -> Attribution:
    """Run a method, and add what it asked of some models to the cost that it states.

    Where it states no seconds, those that passed count, by the meter that has least: each leaves out its own start.
    """
    for meter in meters:
        meter.begin(fresh=fresh)
    for likelihood in likelihoods:
        likelihood.cost = Cost(seconds=0.0)
    try:
        found = method()
    finally:
        costs = [meter.end() for meter in meters]
    passes = [likelihood.cost for likelihood in likelihoods]
    total = sum((*costs, *passes), found.cost)
    known = [cost.seconds for cost in costs if cost.seconds is not None]
    total.seconds = found.cost.seconds
    if total.seconds is None and len(known) == len(costs):
        total.seconds = min(known) + sum(cost.seconds or 0.0 for cost in passes)
    return dataclasses.replace(found, cost=total)


def resemblance(entries: Sequence[Entry], config: AuditConfig, executor: Executor) -> Resemblance:
    """What the search asks about beside an attributed memory, as in the audit: NLI weights play no part in this."""
    graph = TenantGraph(
        entries, neighbours=config.neighbours, all_pairs_below=config.all_pairs_below, seed=config.seed, whole=True
    )  # fmt: skip
    texts = graph.texts
    vectors = executor.embedder.embed([*texts, *(entry.response for entry in entries)])
    graph.embed(vectors[: len(texts)], vectors[len(texts) :])
    graph.observe(np.zeros(len(graph.plan(()))))
    return Resemblance(graph)


def set_attribution(trial: Trial, resembles: Mapping[str, Sequence[str]]) -> Attribution:
    """Run this project's search; its credit ranks, its S is the removed set."""
    memory, events = trial.memory, trial.events
    settings = SearchSettings(attribution_nats=trial.config.attribution_nats)
    search = SetSearch(memory, events, settings, resembles=resembles, scorer=trial.program.build()[1])
    found = Searched(search=search, memory=memory)
    planned = run_searches(trial.executor, trial.program, [found], trial.reporter, "ours")
    scores = {
        event.event_id: {
            entry.entry_id: search.states[event.event_id].credit_of(entry.entry_id)
            for entry in memory.retrieve(event.query)
        }
        for event in events
    }
    more = {
        "replays_to_rank": sum(count for phase, count in planned.items() if phase not in GROWING),
        "replays_by_phase": {RECORDED_PHASES.get(phase, phase): count for phase, count in planned.items()},
        "verdicts": sorted(state.status for state in search.states.values()),
    }
    return Attribution(scores=scores, chosen=search.removal.ids, more=more)


def leave_one_out(trial: Trial) -> Attribution:
    """Plain CMIS (paper eq. 7, Algorithm 1): h of the whole replay less h without one memory, retrieval recomputed.

    Its own rule here: a memory whose removal lowers the harm is removed.
    """
    memory, events = trial.memory, trial.events
    full = {event.event_id: leave_out(event.event_id, "full", "text", frozenset()) for event in events}
    without = {
        (event.event_id, entry.entry_id): leave_out(event.event_id, "leave_one_out", "text", {entry.entry_id})
        for event in events
        for entry in memory.retrieve(event.query)
    }
    by_id = {event.event_id: event for event in events}
    questions = [
        (query, ReplayQuestion(ablation=ablation, memories=memory.retrieve(query, frozenset(ablation.removed))))
        for ablation in (*full.values(), *without.values())
        for query in (by_id[ablation.event_id].query,)
    ]
    outcomes = answer(trial.executor, trial.program, questions, trial.reporter, "leave-one-out")
    scores: dict[str, dict[str, float]] = {event.event_id: {} for event in events}
    for (event_id, entry_id), ablation in without.items():
        before, after = outcomes[full[event_id].pair_id].harm, outcomes[ablation.pair_id].harm
        # A verdict that the scorer could not give moves nothing.
        scores[event_id][entry_id] = 0.0 if before is None or after is None else before - after
    chosen = frozenset(name for found in scores.values() for name, cmis in found.items() if cmis >= HARMFUL)
    return Attribution(scores=scores, chosen=chosen)


def half_ablations(trial: Trial, *, draws: int = DRAWS) -> Attribution:
    """Random halves of the retrieved memories, graded harm, sparse linear fit: ContextCite's plan on our measure.

    The measure is the log-odds of the observed answer at the first word where it leaves the answer without memory.
    Its own rule here: a memory with a positive weight is removed.
    """
    memory, events = trial.memory, trial.events
    gates = {event.event_id: keep_only(event.event_id, "no_memory", "text", ()) for event in events}
    clean = answer(
        trial.executor, trial.program,
        [(event.query, ReplayQuestion(ablation=gates[event.event_id], memories=())) for event in events],
        trial.reporter, "random halves: without memory",
    )  # fmt: skip
    questions: list[tuple[str, ReplayQuestion]] = []
    plans: dict[str, list[tuple[tuple[bool, ...], str]]] = {}
    rng = random.Random(trial.config.seed)
    for event in events:
        context = memory.retrieve(event.query)
        point = first_divergence((event.output,), clean[gates[event.event_id].pair_id].answers)
        masks = [tuple(rng.random() < 0.5 for _ in context) for _ in range(draws)]
        plans[event.event_id] = []
        if point is None:
            continue
        ablations = {}
        for mask in masks:
            kept = tuple(entry for entry, keep in zip(context, mask, strict=True) if keep)
            ablation = keep_only(event.event_id, "keep_one", "odds", tuple(entry.entry_id for entry in kept))
            if mask not in ablations:
                questions.append((event.query, ReplayQuestion(ablation=ablation, memories=kept, point=point)))
            ablations[mask] = ablation.pair_id
            plans[event.event_id].append((mask, ablation.pair_id))
    outcomes = answer(trial.executor, trial.program, questions, trial.reporter, "random halves")
    scores: dict[str, dict[str, float]] = {}
    for event in events:
        ids = [entry.entry_id for entry in memory.retrieve(event.query)]
        rows = [
            (mask, odds)
            for mask, pair_id in plans[event.event_id]
            for odds in (outcomes[pair_id].log_odds_nats,)
            if odds is not None
        ]
        weights = lasso([mask for mask, _ in rows], [odds for _, odds in rows], len(ids))
        scores[event.event_id] = dict(zip(ids, weights.tolist(), strict=True))
    chosen = frozenset(name for found in scores.values() for name, weight in found.items() if weight > 0)
    return Attribution(scores=scores, chosen=chosen)


def lasso(masks: Sequence[Sequence[bool]], values: Sequence[float], sources: int) -> NDArray[np.float64]:
    """Fit values by a sparse sum over the sources kept, on standardised masks.

    Returns:
        Shape (sources,), the weight of each source in the values' unit; zeros without observations.
    """
    if not values:
        return np.zeros(sources)
    from sklearn.linear_model import Lasso  # noqa: PLC0415 - comes with sentence-transformers, and takes seconds

    kept = np.asarray(masks, dtype=np.float64).reshape(len(values), sources)
    scale = kept.std(axis=0)
    scale[scale == 0] = 1.0
    fit: Any = Lasso(alpha=LASSO_ALPHA).fit((kept - kept.mean(axis=0)) / scale, np.asarray(values))
    weights: NDArray[np.float64] = fit.coef_ / scale
    return weights
