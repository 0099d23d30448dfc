"""Questions that a model answers with one token, yes or no, about texts that others wrote.

A text stands between fences that are a digest of itself, its marks of chat templates broken up, so that it can neither
end its quotation nor begin another turn.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

from memory_audit.generation import GenerationRequest, Message
from memory_audit.text.chat_marks import without_chat_marks

if TYPE_CHECKING:
    from memory_audit.generation import Completion

__all__ = ["SURE_NATS", "margin_of", "quoted", "yes_no_request"]

TOP_LOGPROBS = 20
"""Alternatives asked for: what servers allow at most, so that yes and no are among them."""

SURE_NATS = 30.0
"""Margin of a certain answer; finite, so that it can be written down."""


def quoted(text: str) -> str:
    """Return a text as quoted data: its template marks broken up, between fences it cannot contain."""
    shown = without_chat_marks(text)
    fence = f"=== {hashlib.sha256(shown.encode(errors='replace')).hexdigest()[:16]} ==="
    return f"{fence}\n{shown}\n{fence}"


def yes_no_request(system: str, question: str, *, again: bool) -> GenerationRequest:
    """Return a request for yes or no; `again` is the second try, guided to these words."""
    return GenerationRequest(
        messages=(Message(role="system", content=system), Message(role="user", content=question)),
        max_tokens=4 if again else 1,
        top_logprobs=TOP_LOGPROBS,
        choices=("yes", "no") if again else (),
    )


def margin_of(answer: Completion) -> float | None:
    """Return log p(yes) - log p(no) of the first generated token; None where it is neither.

    A word that is not among the alternatives counts as the least likely of them: the margin is then a lower bound of
    its size. Where the server gave no alternatives, the word itself counts.
    """
    if not answer.top:
        word = answer.text.strip().strip(".").casefold()
        return {"yes": SURE_NATS, "no": -SURE_NATS}.get(word)
    first = answer.top[0]
    mass = {"yes": 0.0, "no": 0.0}
    for item in first:
        word = item.text.strip().casefold()
        if word in mass:
            mass[word] += math.exp(item.logprob_nats)
    if not any(mass.values()):
        return None
    floor = math.exp(max(min((item.logprob_nats for item in first), default=-SURE_NATS), -SURE_NATS))
    margin = math.log(max(mass["yes"], floor)) - math.log(max(mass["no"], floor))
    return max(-SURE_NATS, min(SURE_NATS, margin))
