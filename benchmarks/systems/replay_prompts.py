"""Prompts shaped like an audit's replays, made here: a QA agent with memories as chat turns, and its ablations.

Each event gives one prompt with all k memories, one with each memory left out, one with each alone and one with none:
what attribution asks for. Texts come from a seeded generator, with no outside data.
"""

from __future__ import annotations

import random

from memory_audit.generation import GenerationRequest, Message

__all__ = ["event_requests"]

SYSTEM = (
    "You are a careful assistant of a help desk. You are given earlier questions with their answers, then a new one. "
    "Follow the way in which the earlier ones were answered. Think in one or two sentences, then give the letter."
)
TOPICS = ("refund", "password", "invoice", "delivery", "backup", "licence", "printer", "account", "meeting", "contract")
CHECKS = ("the date of the request", "who signed it", "the total amount", "the region", "the earlier tickets")


def event_requests(number: int, *, memories: int = 5, max_tokens: int = 32, seed: int = 0) -> list[GenerationRequest]:
    """Return the replays of one event: 2 * `memories` + 2 requests of up to about 900 tokens."""
    rng = random.Random(f"{seed}/{number}")
    turns = [_turn(rng) for _ in range(memories)]
    question = _question(rng)
    kept = [
        list(range(memories)),
        *([index for index in range(memories) if index != left_out] for left_out in range(memories)),
        *([index] for index in range(memories)),
        [],
    ]
    return [
        GenerationRequest(
            messages=(
                Message(role="system", content=SYSTEM),
                *(message for index in indices for message in turns[index]),
                Message(role="user", content=question),
            ),
            max_tokens=max_tokens,
        )
        for indices in kept
    ]


def _turn(rng: random.Random) -> tuple[Message, Message]:
    first, second = rng.sample(CHECKS, 2)
    answer = (
        f"First I look at {first}, then at {second}. The rule for a {rng.choice(TOPICS)} says that it is decided "
        f"within {rng.randint(2, 30)} days and that the customer is told in writing. Case {rng.randint(1_000, 9_999)} "
        f"went the same way. So the answer is {rng.choice('ABCD')}."
    )
    return Message(role="user", content=_question(rng)), Message(role="assistant", content=answer)


def _question(rng: random.Random) -> str:
    topic = rng.choice(TOPICS)
    options = "\n".join(
        f"{letter}. Decide the {topic} after {rng.randint(1, 40)} days, and check {rng.choice(CHECKS)} before that."
        for letter in "ABCD"
    )
    return f"Ticket {rng.randint(10_000, 99_999)}: a customer asks about a {topic}. What do we do?\n{options}"
