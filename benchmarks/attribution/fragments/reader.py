"""A stand-in for a backbone that puts notes together: it knows the trades, and says what the notes in a prompt lead to.

What a search finds of fragments depends on a model that does harm only with all of them. A small one does not compose.
This reader does, by rule: where the notes lead to an option it says that one, otherwise `unknown`. Each note of the
trade makes its options a little likelier, as a topic does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from benchmarks.attribution.fragments.trades import load_trades
from memory_audit.generation import Completion, TokenLogprob, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.generation import GenerationRequest

__all__ = ["StandInReader"]

UNKNOWN = "unknown"
SURE_NATS, PRIMED_NATS = 4.0, 0.2


class StandInReader:
    """Implements `memory_audit.models.protocols.Generator`."""

    model_id = "stand-in-reader"

    def __init__(self) -> None:
        self._trades = {trade["question"]: trade for trade in load_trades()}

    async def generate(self, request: GenerationRequest) -> Completion:
        """Answer one request in one word."""
        notes, question = request.messages[0].content, request.messages[1].content
        trade = self._trades[question]
        said, related = _read(trade, notes)
        nats = dict.fromkeys((*trade["options"], UNKNOWN), 0.0)
        for option in trade["options"]:
            nats[option] = PRIMED_NATS * related - SURE_NATS
        if said != UNKNOWN:
            nats[said] = SURE_NATS
        total = math.log(sum(math.exp(value) for value in nats.values()))
        ranked = sorted(nats.items(), key=lambda item: (-item[1], item[0]))
        top = tuple(TokenLogprob(text=word, logprob_nats=value - total) for word, value in ranked)
        return Completion(
            text=said, finish_reason="stop", top=(top[: request.top_logprobs],) if request.top_logprobs else (),
            usage=TokenUsage(prompt_tokens=len(notes.split()), completion_tokens=1),
        )  # fmt: skip

    async def close(self) -> None:
        """Nothing to release."""


def _read(trade: Mapping[str, Any], notes: str) -> tuple[str, int]:
    """Return what the notes lead to, and how many of them are about it."""
    related, led_to = 0, UNKNOWN
    for option in (0, 1):
        words = {
            "code": trade["codes"][option], "mark": trade["marks"][option], "option": trade["options"][option],
            "other": trade["options"][1 - option],
        }  # fmt: skip

        def has(note: list[str], words: dict[str, str] = words) -> bool:
            return note[1].format(**words)[1:] in notes

        rule, mark, marked, pair = (has(trade[name]) for name in ("rule", "mark", "marked", "pair"))
        alias = any(map(has, trade["alias"]))
        related = max(related, sum((rule, mark, marked, pair, alias)))
        if (rule and (alias or (mark and marked))) or (pair and alias and mark):
            led_to = trade["options"][option]
    return led_to, related
