"""A simulated world for attribution tests: an exact rule says what the model would do, no model is asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.attribution.replays.ablation import Ablation, Outcome
from memory_audit.attribution.replays.retrieval import RankedMemory
from memory_audit.entry import Entry
from memory_audit.events import Event
from memory_audit.generation import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory_audit.attribution.search.search import SetSearch


def make_entry(number: int, response: str = "fine", *, tenant: str = "t") -> Entry:
    return Entry(
        tenant=tenant, entry_id=f"m{number:03d}", principal=f"user-{number}", source="agent",
        request=f"question {number}", response=response, created_at_ms=number,
    )  # fmt: skip


def make_event(number: int, *, query: str = "", harm: str = "harmful", tenant: str = "t") -> Event:
    return Event(
        event_id=f"e{number:03d}", tenant=tenant, ts_ms=number, query=query or f"query {number}", output="bad",
        retrieved=None, harm=harm,
    )  # fmt: skip


class World:
    """Memories, events, and a rule from what is in the context to how strongly the model leans to harm."""

    def __init__(
        self,
        entries: int,
        orders: dict[str, list[int]],
        lean: Callable[[str, frozenset[int]], float],
        *,
        k: int = 5,
        logprobs: bool = True,
    ) -> None:
        self.entries = [make_entry(number) for number in range(entries)]
        self.memory = RankedMemory(self.entries, lambda query: np.array(orders[query]), k)
        self._lean = lean
        self._logprobs = logprobs
        self.asked: list[Ablation] = []

    def answer(self, event: Event, ablation: Ablation) -> Outcome:
        self.asked.append(ablation)
        if ablation.kept is not None:
            context = ablation.kept
        else:
            found = self.memory.retrieve(event.query, frozenset(ablation.removed), logged=event.retrieved)
            context = tuple(entry.entry_id for entry in found)
        odds = self._lean(event.query, frozenset(int(entry_id[1:]) for entry_id in context))
        text, sampled = ablation.measure == "text", ablation.measure == "sample"
        answer = "harm done" if odds > 0 else "all well"
        harm = float(odds > 0) if text else 1 / (1 + math.exp(-odds)) if sampled else None
        graded = sampled or (self._logprobs and ablation.measure == "odds")
        return Outcome(
            pair_id=ablation.pair_id, event_id=event.event_id, context=context, harm=harm,
            log_odds_nats=odds if graded else None, output=answer if text else "",
            answers=(answer,) if text else (), prompt_hash="", memoised=False, usage=TokenUsage(),
        )  # fmt: skip

    def run(self, search: SetSearch, *, shuffle: Callable[[list[Outcome]], Iterable[Outcome]] = lambda o: o) -> None:
        while ablations := search.plan():
            search.observe(
                shuffle([self.answer(search.states[ablation.event_id].event, ablation) for ablation in ablations])
            )
