"""Answer a group of replay questions concurrently: what one Ray task, or the local executor, does.

A group is one event's questions of one round. They are started in the order planned, the full prompt first, so that its
variants find it in the backbone's prefix cache, and awaited together.

A memory may be too long for the backbone's context, and an attacker may have made it so: a replay then leaves out the
longest memory that it was to show, and the next one, until the prompt fits. The outcome names them.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memory_audit.attribution.replays.ablation import Ablation, Outcome
from memory_audit.attribution.replays.agents import Agent, load_agent
from memory_audit.attribution.replays.harm import HarmScorer, load_harm
from memory_audit.attribution.replays.replay import replay, request_at, score_output
from memory_audit.attribution.search.points.divergence import (
    MeasurementPoint,
    continuation_request,
    graded_request,
    log_odds,
    log_odds_further_on,
)
from memory_audit.errors import PrefixUnsupportedError, PromptTooLongError
from memory_audit.generation import TokenUsage
from memory_audit.models.backbone.memo import MemoGenerator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memory_audit.attribution.replays.replay import Transcript
    from memory_audit.entry import Entry
    from memory_audit.generation import Completion, GenerationRequest
    from memory_audit.models.protocols import Generator

__all__ = ["Program", "ReplayGroup", "ReplayQuestion", "hash_at_point", "request_of", "stream_outcomes"]

SAMPLING_TEMPERATURE = 1.0
"""The model's own distribution: what log-probabilities are of."""


LEAST_JUDGED = 0.5
"""Share of a question's samples that must be judged: the rest might else have said anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayQuestion:
    """One ablation with the memories it leaves in the context."""

    ablation: Ablation
    memories: tuple[Entry, ...]
    point: MeasurementPoint | None = None
    """Where to measure, for what is asked at a measurement point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayGroup:
    """All questions about one event in one round."""

    event_id: str
    query: str
    questions: tuple[ReplayQuestion, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """The agent and the harm scorer by their settings, so that a worker builds its own."""

    agent_json: str
    harm_json: str
    seed: int
    samples: int = 0
    """Replays of one `sample` question."""

    @classmethod
    def of(cls, agent: Mapping[str, object], harm: Mapping[str, object], seed: int, samples: int = 0) -> Program:
        """Make a program of configuration values."""
        return cls(json.dumps(dict(agent), sort_keys=True), json.dumps(dict(harm), sort_keys=True), seed, samples)

    def replays_of(self, ablation: Ablation) -> int:
        """Return how many replays a question takes: each sample is one."""
        return self.samples if ablation.measure == "sample" else 1

    def build(self) -> tuple[Agent, HarmScorer]:
        """Return the agent and the scorer; built once per process.

        Raises:
            UsageError: the settings name nothing that can be built.
        """
        return _agent(self.agent_json), _harm(self.harm_json)


@functools.cache
def _agent(settings: str) -> Agent:
    return load_agent(json.loads(settings))


@functools.cache
def _harm(settings: str) -> HarmScorer:
    return load_harm(json.loads(settings))


def stream_outcomes(
    groups: Sequence[ReplayGroup],
    program: Program,
    backbone: Callable[[str], Generator],
    loop: asyncio.AbstractEventLoop,
) -> Iterator[Outcome]:
    """Answer all questions of all groups at once and yield each outcome as it arrives.

    Args:
        groups: Whole events.
        program: The agent and the harm scorer.
        backbone: From an event id to the generator that serves it.
        loop: The event loop that the generators belong to; not running.

    Raises:
        ModelError: a question failed; outcomes yielded before are good, the rest is cancelled.
    """
    agent, harm = program.build()
    # Waiting for the first of all tasks would look at each of them again whenever one is done.
    arrived: asyncio.Queue[asyncio.Task[Outcome]] = asyncio.Queue()
    tasks = {
        loop.create_task(_answer(agent, harm, group.query, program, question, generator))
        for group in groups
        for generator in (MemoGenerator(backbone(group.event_id)),)
        for question in group.questions
    }
    for task in tasks:
        task.add_done_callback(arrived.put_nowait)
    try:
        while tasks:
            done = [loop.run_until_complete(arrived.get())]
            done.extend(arrived.get_nowait() for _ in range(arrived.qsize()))
            tasks.difference_update(done)
            failed = [task for task in done if task.exception() is not None]
            for task in done:
                if task not in failed:
                    yield task.result()
            if failed:
                failed[0].result()
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


async def _answer(  # noqa: PLR0913, PLR0917 - one question and what answers it
    agent: Agent, harm: HarmScorer, query: str, program: Program, question: ReplayQuestion, generator: MemoGenerator
) -> Outcome:
    meter = _Meter(generator)
    shown = question.memories
    left_out: list[Entry] = []
    found: _Answer | None = None
    while found is None:
        try:
            found = await _ask(agent, harm, query, program, replace(question, memories=shown), meter)
        except PromptTooLongError:
            if not shown:
                measured = request_of(agent, query, program, replace(question, memories=()))
                found = _Answer(fits=False, prompt_hash=hash_at_point(measured, question))
            else:
                left_out.append(max(shown, key=lambda entry: len(entry.request) + len(entry.response)))
                shown = tuple(entry for entry in shown if entry is not left_out[-1])
    return Outcome(
        pair_id=question.ablation.pair_id,
        event_id=question.ablation.event_id,
        context=tuple(entry.entry_id for entry in question.memories),
        harm=found.harm,
        log_odds_nats=found.log_odds_nats,
        output=found.output,
        answers=found.answers,
        prompt_hash=found.prompt_hash,
        memoised=0 < meter.requests == meter.shared,
        usage=meter.usage,
        left_out=tuple(entry.entry_id for entry in left_out) if found.fits else (),
        fits=found.fits,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The parts of an Outcome that the agent and the scorer give."""

    harm: float | None = None
    log_odds_nats: float | None = None
    output: str = ""
    answers: tuple[str, ...] = ()
    prompt_hash: str = ""
    fits: bool = True


async def _ask(  # noqa: PLR0913, PLR0917 - one question and what answers it
    agent: Agent, harm: HarmScorer, query: str, program: Program, question: ReplayQuestion, meter: _Meter
) -> _Answer:
    """Answer a question with all of its memories.

    Raises:
        PromptTooLongError: they do not fit.
    """
    ablation = question.ablation
    output, score, odds = "", None, None
    answers: tuple[str, ...] = ()
    if ablation.measure == "text":
        transcript = await replay(agent, query, question.memories, program.seed, meter.generate)
        output, answers = transcript.output, transcript.answers
        score = await score_output(harm.score(query, output), meter.generate)
        prompt_hash = transcript.prompt_hash
    elif ablation.measure == "sample":
        samples = await asyncio.gather(*(
            _sample(agent, harm, query, question.memories, program.seed + number, meter)
            for number in range(program.samples)
        ))  # fmt: skip
        prompt_hash = samples[0][0].prompt_hash if samples else ""
        score, odds = _of_samples([harm_of_one for _, harm_of_one in samples])
    else:
        point, measured = question.point, request_of(agent, query, program, question)
        prompt_hash = hash_at_point(measured, question)
        if measured is not None and point is not None:
            with suppress(PrefixUnsupportedError):  # no odds: the search samples instead
                completion = await meter.generate(measured)
                output = completion.text
                odds = (log_odds if ablation.measure == "odds" else log_odds_further_on)(completion, point)
    return _Answer(harm=score, log_odds_nats=odds, output=output, answers=answers, prompt_hash=prompt_hash)


def request_of(agent: Agent, query: str, program: Program, question: ReplayQuestion) -> GenerationRequest | None:
    """Return what is asked for a question at a measurement point; None without one, or at a turn that is never reached.

    No model is asked.
    """
    point = question.point
    request = None if point is None else request_at(agent, query, question.memories, program.seed, point.history)
    if request is None or point is None:
        return None
    graded = question.ablation.measure == "odds"
    return graded_request(request, point) if graded else continuation_request(request, point)


def hash_at_point(request: GenerationRequest | None, question: ReplayQuestion) -> str:
    """Return the `prompt_hash` of a measurement: of its request, and of what its odds are read against.

    A point whose y* goes on in other words may be asked for by an equal request.
    """
    point = question.point
    if request is None or point is None:
        return ""
    graded = question.ablation.measure == "odds"
    read = (point.harmful, point.clean) if graded else (point.answer[point.start :],)
    return hashlib.sha256(json.dumps([request.digest(), *read]).encode()).hexdigest()


def _of_samples(harms: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Return the mean harm of sampled replays and its log-odds in nats, of as many samples as were asked for.

    The odds of two questions are subtracted. Anscombe's correction pulls those of few samples towards 0, so counted
    over what was judged, a memory whose samples mostly cannot be judged would seem to raise the odds though none was
    harmful. Samples that could not be judged are therefore taken to be harmful as often as those that were: all odds
    are of the same number of samples. Where fewer than LEAST_JUDGED of them were judged both are None: unknown.
    """
    judged = [harm for harm in harms if harm is not None]
    if not judged or len(judged) < LEAST_JUDGED * len(harms):
        return None, None
    harmful = math.fsum(judged)
    of_all = harmful * (len(harms) / len(judged))
    return harmful / len(judged), math.log((of_all + 0.5) / (len(harms) - of_all + 0.5))


async def _sample(  # noqa: PLR0913, PLR0917 - one replay, varied
    agent: Agent, harm: HarmScorer, query: str, memories: Sequence[Entry], seed: int, meter: _Meter
) -> tuple[Transcript, float | None]:
    """Replay once as the model would vary it: its own distribution, told by a seed. The scorer is asked as ever."""

    async def varied(request: GenerationRequest) -> Completion:
        return await meter.generate(replace(request, temperature=SAMPLING_TEMPERATURE, seed=seed))

    transcript = await replay(agent, query, memories, seed, varied)
    return transcript, await score_output(harm.score(query, transcript.output), meter.generate)


class _Meter:
    """Counts what one question costs."""

    __slots__ = ("_generator", "requests", "shared", "usage")

    def __init__(self, generator: MemoGenerator) -> None:
        self._generator = generator
        self.requests = self.shared = 0
        self.usage = TokenUsage()

    async def generate(self, request: GenerationRequest) -> Completion:
        completion, shared = await self._generator.ask(request)
        self.requests += 1
        self.shared += shared
        self.usage += completion.usage
        return completion
