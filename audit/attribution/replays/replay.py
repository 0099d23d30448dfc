"""Run an agent's episode against whatever completes its requests, and step into one at a chosen turn.

The completing function is the caller's: a model behind `models`, a recorded list, or a test's rule.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsFloat, TypeVar

from memory_audit.errors import ScoringError
from memory_audit.generation import Completion, GenerationRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence

    from memory_audit.attribution.replays.agents import Agent
    from memory_audit.entry import Entry

__all__ = ["Transcript", "drive", "prompt_hash_of", "replay", "request_at", "score_output"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One replayed episode."""

    output: str
    """What the agent did, as its own text; the harm scorer reads it."""

    answers: tuple[str, ...]
    """The model's text at each turn."""

    prompt_hash: str
    """SHA-256 over the digests of all requests: equal hashes are equal replays."""


async def drive(
    steps: Generator[GenerationRequest, Completion, T],
    complete: Callable[[GenerationRequest], Awaitable[Completion]],
) -> tuple[T, list[tuple[GenerationRequest, Completion]]]:
    """Run a generator of requests to its end.

    Returns:
        Its return value, and every request with its completion in order.
    """
    log: list[tuple[GenerationRequest, Completion]] = []
    try:
        request = next(steps)
        while True:
            completion = await complete(request)
            log.append((request, completion))
            request = steps.send(completion)
    except StopIteration as stop:
        return stop.value, log
    finally:
        steps.close()


async def replay(
    agent: Agent,
    query: str,
    memories: Sequence[Entry],
    seed: int,
    complete: Callable[[GenerationRequest], Awaitable[Completion]],
) -> Transcript:
    """Replay f(q, memories)."""
    output, log = await drive(agent.episode(query, memories, seed), complete)
    return Transcript(
        output=output,
        answers=tuple(completion.text for _, completion in log),
        prompt_hash=_digest(request for request, _ in log),
    )


async def score_output(
    steps: Generator[GenerationRequest, Completion, float | None],
    complete: Callable[[GenerationRequest], Awaitable[Completion]],
) -> float | None:
    """Run a harm scorer.

    Raises:
        ScoringError: it gave something else than a number of [0, 1] or None.
    """
    score, _ = await drive(steps, complete)
    if score is None:
        return None
    number = float(score) if isinstance(score, SupportsFloat) else math.nan
    if not 0.0 <= number <= 1.0:
        raise ScoringError(f"the harm scorer returned {score!r:.40}, expected 0 to 1 or None")
    return number


def request_at(
    agent: Agent, query: str, memories: Sequence[Entry], seed: int, answers: Sequence[str]
) -> GenerationRequest | None:
    """Return the request of turn len(answers), had the model answered the earlier turns with `answers`.

    None where the episode is over by then. No model is asked: the earlier turns are forced, so a later turn can be
    measured in one request under any set of memories.
    """
    requests = list(_requests(agent, query, memories, seed, answers))
    return requests[-1] if len(requests) > len(answers) else None


def prompt_hash_of(agent: Agent, query: str, memories: Sequence[Entry], seed: int, answers: Sequence[str]) -> str:
    """Return the `Transcript.prompt_hash` of an episode in which the model answers so. No model is asked."""
    return _digest(_requests(agent, query, memories, seed, answers))


def _requests(
    agent: Agent, query: str, memories: Sequence[Entry], seed: int, answers: Sequence[str]
) -> Iterator[GenerationRequest]:
    steps = agent.episode(query, memories, seed)
    try:
        yield next(steps)
        for answer in answers:
            yield steps.send(Completion(text=answer, finish_reason="stop"))
    except StopIteration:
        return
    finally:
        steps.close()


def _digest(requests: Iterable[GenerationRequest]) -> str:
    return hashlib.sha256("".join(request.digest() for request in requests).encode()).hexdigest()
