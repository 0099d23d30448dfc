"""Generic retry, the comparison to repair: a refused agent is told no, without why, and asked to try again.

It needs no policy on parameters' kinds and names nothing to an attacker, but each attempt is another model call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_audit.gate.call import Context, ToolCall
    from memory_audit.gate.gate import Gate, GateDecision

__all__ = ["REFUSAL", "Retried", "retry"]

REFUSAL = (
    "This call was refused because a value in it may not come from the user. Propose a call that uses only values that "
    "the user gave, or none."
)
"""Tells an attacker nothing about which value, text or rule it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """How a retried call ended."""

    decision: GateDecision | None
    """The last decision; None where the agent proposed nothing any more."""

    gate_calls: int


def retry(
    gate: Gate,
    call: ToolCall,
    context: Context,
    propose: Callable[[str], ToolCall | None],
    *,
    now_ms: int,
    attempts: int = 3,
) -> Retried:
    """Judge a call and, where it is not allowed, ask the agent for others.

    Args:
        gate: With a policy whose refusal is `deny`: a repair ends the loop like an allowance.
        call: The first proposal.
        context: Of every proposal.
        propose: Given `REFUSAL`, returns the agent's next call, or None where it gives up.
        now_ms: Clock, Unix milliseconds.
        attempts: Proposals judged in all, at least 1.
    """
    decision = gate.decide(call, context, now_ms=now_ms)
    judged = 1
    while decision.verdict == "deny" and judged < attempts:
        following = propose(REFUSAL)
        if following is None:
            return Retried(decision=None, gate_calls=judged)
        decision = gate.decide(following, context, now_ms=now_ms)
        judged += 1
    return Retried(decision=decision, gate_calls=judged)
