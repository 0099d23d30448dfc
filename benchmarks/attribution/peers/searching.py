"""Drive set searches in lockstep, round by round, as the audit job does, without a store, NLI or a report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.retrieval import topic_memory
from memory_audit.jobs.executors.replay_group import ReplayGroup, ReplayQuestion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.attribution.replays.retrieval import RankedMemory
    from memory_audit.attribution.search.search import SetSearch
    from memory_audit.entry import Entry
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.executors.replay_group import Program
    from memory_audit.jobs.watching.progress import Reporter

__all__ = ["GROWING", "Searched", "answer", "run_searches"]

GROWING = frozenset({"closure", "verify", "neighbours"})
"""Phases after the retrieved memories are ranked: they grow S over the whole store and check it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """One search and the memory it searches."""

    search: SetSearch
    memory: RankedMemory


def run_searches(
    executor: Executor,
    program: Program,
    searches: Collection[Searched],
    reporter: Reporter,
    stage: str,
    *,
    stop_at: frozenset[str] = frozenset(),
) -> Counter[str]:
    """Run searches to their end, or until the phase of a round is in `stop_at`.

    Event ids must differ over all searches.

    Returns:
        Replays planned per phase.
    """
    planned: Counter[str] = Counter()
    texts: dict[tuple[str, tuple[str, ...]], Outcome] = {}
    live = list(searches)
    while live:
        rounds = [(found, found.search.plan()) for found in live]
        rounds = [(found, asked) for found, asked in rounds if asked and found.search.phase not in stop_at]
        live = [found for found, _ in rounds]
        questions = []
        for found, asked in rounds:
            planned[found.search.phase] += len(asked)
            questions += [(_query(found, ablation), _question(found, ablation)) for ablation in asked]
        outcomes = answer(executor, program, questions, reporter, stage, known=texts)
        for found, asked in rounds:
            found.search.observe([outcomes[ablation.pair_id] for ablation in asked])
    return planned


def answer(
    executor: Executor,
    program: Program,
    questions: Iterable[tuple[str, ReplayQuestion]],
    reporter: Reporter,
    stage: str,
    *,
    known: dict[tuple[str, tuple[str, ...]], Outcome] | None = None,
) -> Mapping[str, Outcome]:
    """Answer (query, question) pairs, whole events together; returns outcomes by pair id.

    Args:
        executor: Where the backbone is.
        program: The agent and the harm scorer.
        questions: Any number, of any events.
        reporter: For progress.
        stage: Its name there.
        known: Text replays by event and context, extended here: an equal context is an equal prompt.
    """
    known = {} if known is None else known
    grouped: dict[str, tuple[str, list[ReplayQuestion]]] = {}
    asked: dict[str, tuple[str, tuple[str, ...]]] = {}
    waiting: set[tuple[str, tuple[str, ...]]] = set()
    for query, question in questions:
        ablation = question.ablation
        if ablation.measure == "text":
            key = (ablation.event_id, tuple(entry.entry_id for entry in question.memories))
            asked[ablation.pair_id] = key
            if key in known or key in waiting:
                continue
            waiting.add(key)
        grouped.setdefault(ablation.event_id, (query, []))[1].append(question)
    groups = [
        ReplayGroup(event_id=event_id, query=query, questions=tuple(items))
        for event_id, (query, items) in sorted(grouped.items())
    ]
    outcomes: dict[str, Outcome] = {}
    with reporter.stage(stage, sum(len(group.questions) for group in groups)) as progress:
        for outcome in executor.replay(groups, program):
            outcomes[outcome.pair_id] = outcome
            if outcome.pair_id in asked:
                known[asked[outcome.pair_id]] = outcome
            progress.advance()
    return outcomes | {pair_id: known[key] for pair_id, key in asked.items()}


def _query(found: Searched, ablation: Ablation) -> str:
    return found.search.states[ablation.event_id].event.query


def _question(found: Searched, ablation: Ablation) -> ReplayQuestion:
    state = found.search.states[ablation.event_id]
    if ablation.topic:
        memories: tuple[Entry, ...] = (topic_memory(state.event),)
    elif ablation.kept is not None:
        memories = tuple(found.memory.entry(entry_id) for entry_id in ablation.kept)
    else:
        memories = found.memory.retrieve(state.event.query, frozenset(ablation.removed))
    point = state.points[ablation.point] if ablation.at_point else None
    return ReplayQuestion(ablation=ablation, memories=memories, point=point)
