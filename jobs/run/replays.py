"""Replays: rounds of ablations through the executor, past what is known already.

An answer is known where the run folder has it by its pair id, or where the agent was shown the same memories at the
same event before: an equal context is an equal prompt, and its text is asked for once. That of an earlier run is taken
over where the same backbone, agent, scorer, seed and number of samples gave it to the same prompt: whether it is the
same is seen by making the prompt anew, with the recorded answers in the place of the model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.replay import prompt_hash_of
from memory_audit.attribution.replays.retrieval import topic_memory
from memory_audit.errors import IncompleteError
from memory_audit.generation import TokenUsage
from memory_audit.jobs.executors.replay_group import Program, ReplayGroup, ReplayQuestion, hash_at_point, request_of
from memory_audit.jobs.watching.progress import say, stage, tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_audit.attribution.replays.ablation import Ablation, Outcome
    from memory_audit.entry import Entry
    from memory_audit.jobs.executors.executor import Executor
    from memory_audit.jobs.run.run_folder import RunFolder
    from memory_audit.report.findings import TenantEvidence
    from memory_audit.request import AuditRequest

__all__ = ["Replayer"]


class Replayer:
    """Answers ablations, each at most once in the life of a run."""

    def __init__(self, request: AuditRequest, executor: Executor, run: RunFolder) -> None:
        config = request.config
        self._executor, self._run, self._calibration = executor, run, request.calibration
        self._events = {event.event_id: event for event in request.events.events}
        self._program = Program.of(config.agent, config.harm, config.seed, config.samples)
        self._program_digest = request.program
        self._agent, self.scorer = self._program.build()
        self.costs: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By tenant: replays, each sample one, and tokens."""

        self._texts: dict[tuple[str, ...], Outcome] = {}
        """Replays as text, by event and what the agent was shown."""

        self._counted: set[str] = set()
        self._sampled: set[str] = set()
        self._started = False
        self.left_out: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
        """By tenant and entry, the pair ids of replays whose context had no room for it."""

    def run(
        self, what: str, rounds: Mapping[str, Sequence[Ablation]], evidence: Mapping[str, TenantEvidence]
    ) -> dict[str, Outcome]:
        """Return the outcome of every ablation asked, by pair id.

        Args:
            what: Name of the round, for progress.
            rounds: Tenant to what is asked.
            evidence: Tenant to what is known of it.

        Raises:
            ModelError: the backbone died; what it answered before is kept.
            IncompleteError: some answers did not come, or the disk is full.
        """
        answers: dict[str, Outcome] = {}
        waiting: list[ReplayQuestion] = []
        for tenant, ablations in rounds.items():
            for ablation in ablations:
                known = self._kept(ablation, evidence[tenant])
                if known is None:
                    waiting.append(self._question(ablation, evidence[tenant]))
                else:
                    answers[ablation.pair_id] = known
                    self._learn(ablation, known)
        asked: dict[tuple[str, ...], ReplayQuestion] = {}
        for question in waiting:
            if (key := _key(question)) not in self._texts:
                asked.setdefault(key, question)
        tally().of("replay").known += sum(map(len, rounds.values())) - len(asked)
        if asked:
            answers |= self._ask(what, asked.values())
        for question in waiting:
            if (pair_id := question.ablation.pair_id) not in answers:
                equal = self._texts[_key(question)]
                answers[pair_id] = replace(equal, pair_id=pair_id, memoised=True, usage=TokenUsage())
        for tenant, ablations in rounds.items():
            for ablation in ablations:
                for entry_id in () if ablation.topic else answers[ablation.pair_id].left_out:
                    self.left_out[tenant].setdefault(entry_id, set()).add(ablation.pair_id)
        return answers

    def _ask(self, what: str, questions: Iterable[ReplayQuestion]) -> dict[str, Outcome]:
        """Have the executor answer questions, and keep each answer as it comes."""
        by_id = {question.ablation.pair_id: question for question in questions}
        if not self._started:
            with stage("starting the backbone", 1, announced=True, label="load") as progress:
                model_id = self._executor.backbone.model_id
                if self._calibration is not None:
                    self._calibration.check_backbone(model_id)
                self._run.record_models({"backbone": model_id})
                progress.advance()
            self._started = True
        found = self._taken_over(by_id.values())
        groups: dict[str, list[ReplayQuestion]] = {}
        for question in by_id.values():
            if question.ablation.pair_id not in found:
                groups.setdefault(question.ablation.event_id, []).append(question)
        work = [
            ReplayGroup(event_id=event_id, query=self._events[event_id].query, questions=tuple(groups[event_id]))
            for event_id in sorted(groups)
        ]
        self._say_what_is_sampled(question for group in work for question in group.questions)
        tally().of("replay").known += len(found)
        if not work:
            return found
        try:
            with stage(what, len(by_id) - len(found), label="replay") as progress:
                for outcome in self._executor.replay(work, self._program):
                    self._run.add(outcome)
                    self._learn(by_id[outcome.pair_id].ablation, outcome)
                    found[outcome.pair_id] = outcome
                    progress.advance()
        finally:
            self._run.flush()
        if missing := len(by_id) - len(found):
            raise IncompleteError(f"{missing} of {len(by_id)} replays did not come back; start the command again")
        return found

    def _taken_over(self, questions: Iterable[ReplayQuestion]) -> dict[str, Outcome]:
        """Keep what an earlier run was answered, by pair id; it costs nothing tonight."""
        found: dict[str, Outcome] = {}
        if self._run.earlier is None:
            return found
        known = self._run.earlier.replays(self._run.models["backbone"], self._program_digest)
        for question in questions:
            ablation, shown = question.ablation, tuple(entry.entry_id for entry in question.memories)
            alike = list(known.get((ablation.pair_id,), ()))
            if ablation.measure == "text":
                alike += known.get((ablation.event_id, *shown), ())
            same = next((outcome for outcome in alike if self._is_answer(question, outcome)), None)
            if same is not None:
                outcome = replace(same, pair_id=ablation.pair_id, context=shown, memoised=True, usage=TokenUsage())
                self._run.add(outcome)
                self._learn(ablation, outcome)
                found[outcome.pair_id] = outcome
        self._run.earlier.taken["replays"] += len(found)
        return found

    def _is_answer(self, question: ReplayQuestion, outcome: Outcome) -> bool:
        """Tell whether an outcome is of the prompt that this question makes; one that lacked room is asked again.

        Of samples only the first prompt is known: those of an agent that speaks more than once are asked again.
        """
        if outcome.left_out or not outcome.fits or outcome.event_id != question.ablation.event_id:
            return False
        if question.ablation.at_point:
            return outcome.prompt_hash == self._hash(question, outcome)
        query, seed = self._events[outcome.event_id].query, self._program.seed
        return outcome.prompt_hash == prompt_hash_of(self._agent, query, question.memories, seed, outcome.answers)

    def _say_what_is_sampled(self, questions: Iterable[ReplayQuestion]) -> None:
        ablations = (question.ablation for question in questions)
        sampled = {ablation.event_id for ablation in ablations if ablation.measure == "sample"} - self._sampled
        if sampled:
            say(
                f"no odds of the harm can be had for {len(sampled)} events: it is counted in {self._program.samples} "
                "samples per question"
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
        if ablation.topic:
            memories: tuple[Entry, ...] = (topic_memory(self._events[ablation.event_id]),)
        elif ablation.kept is not None:
            memories = tuple(found.memory.entry(entry_id) for entry_id in ablation.kept)
        else:
            event = self._events[ablation.event_id]
            memories = found.memory.retrieve(event.query, frozenset(ablation.removed), logged=event.retrieved)
        state = found.search.states.get(ablation.event_id)
        point = state.points[ablation.point] if state is not None and ablation.at_point else None
        return ReplayQuestion(ablation=ablation, memories=memories, point=point)

    def _learn(self, ablation: Ablation, outcome: Outcome) -> None:
        if ablation.measure == "text":
            self._texts[outcome.event_id, *outcome.context] = outcome
        if outcome.pair_id not in self._counted:
            self._counted.add(outcome.pair_id)
            tenant = self._events[outcome.event_id].tenant
            replays = self._program.replays_of(ablation)
            self.costs[tenant].update(replays=replays, memoised=int(outcome.memoised), **asdict(outcome.usage))


def _key(question: ReplayQuestion) -> tuple[str, ...]:
    """Return what the answer depends on: the event and what is shown there for a text, else the pair itself."""
    if question.ablation.measure == "text":
        return question.ablation.event_id, *(entry.entry_id for entry in question.memories)
    return "", question.ablation.pair_id  # no event has an empty id
