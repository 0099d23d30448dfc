"""Run rounds of ablations through the executor, past what the run folder already knows."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_audit.errors import IncompleteError
from memory_audit.jobs.executors.replay_group import Program, ReplayGroup, ReplayQuestion, hash_at_point, request_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.config import AuditConfig
    from memory_audit.events import Event
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.progress import Reporter
    from memory_audit.jobs.run.run_folder import RunFolder
    from memory_audit.report.findings import TenantEvidence

__all__ = ["Replayer"]


class Replayer:
    """Runs rounds of ablations through the executor, past what the run folder already knows."""

    def __init__(
        self,
        executor: Executor,
        run: RunFolder,
        config: AuditConfig,
        reporter: Reporter,
        events: Mapping[str, Event],
    ) -> None:
        self._executor, self._run, self._reporter, self._events = executor, run, reporter, events
        self._program = Program.of(config.agent, config.harm, config.seed, config.samples)
        # A wrong agent or scorer is told before any model loads.
        self._agent, self.scorer = self._program.build()
        self.counters: Counter[str] = Counter()
        self._texts: dict[tuple[str, tuple[str, ...]], Outcome] = {}
        self._counted: set[str] = set()
        self._sampled: set[str] = set()
        self._started = False
        self.left_out: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
        """By tenant and entry, the pair ids of replays whose context had no room for it."""

    def run(
        self, stage: str, rounds: Mapping[str, Sequence[Ablation]], evidence: Mapping[str, TenantEvidence]
    ) -> dict[str, Outcome]:
        """Return the outcome of every ablation asked, by pair id."""
        groups: dict[str, list[ReplayQuestion]] = {}
        same: dict[str, tuple[str, tuple[str, ...]]] = {}
        known: dict[str, Outcome] = {}
        asked_texts: set[tuple[str, tuple[str, ...]]] = set()
        texts: set[str] = set()
        for tenant, ablations in rounds.items():
            for ablation in ablations:
                if ablation.measure == "text":
                    texts.add(ablation.pair_id)
                if (outcome := self._kept(ablation, evidence[tenant])) is not None:
                    known[ablation.pair_id] = outcome
        for outcome in known.values():  # before the questions: what a resumed run knows answers equal contexts too
            self._learn(outcome, text=outcome.pair_id in texts)
        for tenant, ablations in rounds.items():
            found = evidence[tenant]
            for ablation in ablations:
                if ablation.pair_id in known:
                    continue
                question = self._question(ablation, found)
                if ablation.measure == "text":
                    # An equal context is an equal prompt: it is answered once.
                    key = (ablation.event_id, tuple(entry.entry_id for entry in question.memories))
                    if key in self._texts or key in asked_texts:
                        same[ablation.pair_id] = key
                        continue
                    asked_texts.add(key)
                groups.setdefault(ablation.event_id, []).append(question)
        total = sum(len(questions) for questions in groups.values())
        if total:
            self._say_what_is_sampled(groups)
            work = [
                ReplayGroup(event_id=event_id, query=self._events[event_id].query, questions=tuple(groups[event_id]))
                for event_id in sorted(groups)
            ]
            if not self._started:
                with self._reporter.stage("starting the backbone", 1, announced=True) as progress:
                    self._executor.start_backbone()
                    progress.advance()
                self._started = True
            try:
                with self._reporter.stage(stage, total) as progress:
                    for outcome in self._executor.replay(work, self._program):
                        self._run.record_models(self._executor.model_ids())
                        self._run.add(outcome)
                        self._learn(outcome, text=outcome.pair_id in texts)
                        known[outcome.pair_id] = outcome
                        progress.advance()
            finally:
                self._run.flush()
            missing = total - sum(
                question.ablation.pair_id in known for questions in groups.values() for question in questions
            )
            if missing:
                raise IncompleteError(f"{missing} of {total} replays did not come back; start the command again")
        shared = {
            pair_id: replace(
                self._texts[key], pair_id=pair_id, memoised=True, prompt_tokens=0, cached_tokens=0, completion_tokens=0
            )
            for pair_id, key in same.items()
        }
        answers = known | shared
        for tenant, ablations in rounds.items():
            for ablation in ablations:
                for entry_id in answers[ablation.pair_id].left_out:
                    self.left_out[tenant].setdefault(entry_id, set()).add(ablation.pair_id)
        return answers

    def _say_what_is_sampled(self, groups: Mapping[str, Sequence[ReplayQuestion]]) -> None:
        sampled = {
            event_id
            for event_id, questions in groups.items()
            if any(question.ablation.measure == "sample" for question in questions)
        }
        if sampled - self._sampled:
            self._reporter.say(
                f"no odds of the harm can be had for {len(sampled - self._sampled)} events: it is counted in "
                f"{self._program.samples} samples per question"
            )
            self._sampled |= sampled

    def _kept(self, ablation: Ablation, found: TenantEvidence) -> Outcome | None:
        """Return what the run folder knows of a question.

        A measurement point is named by its number, and its text comes from replays that may have been lost and come
        back in other words: an answer is of this point only where it is what would be asked now.
        """
        kept = self._run.outcomes_of(ablation.pair_id)
        if not kept or not ablation.at_point:
            return kept[0] if kept else None
        question = self._question(ablation, found)
        return next((outcome for outcome in kept if outcome.prompt_hash == self._hash(question, outcome)), None)

    def _hash(self, question: ReplayQuestion, outcome: Outcome) -> str:
        """Return an outcome's prompt hash if it answers this question, with the memories that it was shown."""
        shown = tuple(entry for entry in question.memories if outcome.fits and entry.entry_id not in outcome.left_out)
        query = self._events[question.ablation.event_id].query
        request = request_of(self._agent, query, self._program, replace(question, memories=shown))
        return hash_at_point(request, question)

    def _question(self, ablation: Ablation, found: TenantEvidence) -> ReplayQuestion:
        if ablation.kept is not None:
            memories = tuple(found.memory.entry(entry_id) for entry_id in ablation.kept)
        else:
            event = self._events[ablation.event_id]
            memories = found.memory.retrieve(event.query, frozenset(ablation.removed), logged=event.retrieved)
        state = found.search.states.get(ablation.event_id)
        point = state.points[ablation.point] if state is not None and ablation.at_point else None
        return ReplayQuestion(ablation=ablation, memories=memories, point=point)

    def _learn(self, outcome: Outcome, *, text: bool) -> None:
        # An agent may serve a query without its model: a text replay need not have answers.
        if text:
            self._texts[outcome.event_id, outcome.context] = outcome
        if outcome.pair_id in self._counted:
            return
        self._counted.add(outcome.pair_id)
        self.counters.update(
            replays=1, memoised=int(outcome.memoised), prompt_tokens=outcome.prompt_tokens,
            cached_tokens=outcome.cached_tokens, completion_tokens=outcome.completion_tokens,
        )  # fmt: skip
