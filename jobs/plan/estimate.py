"""What an audit of each tenant will ask of the models: at least, usually, and at most.

How many replays an event needs shows only once it is asked, so that no single number is given.

- *Least*: no harm is reproduced. Each event is replayed with the whole store and with no memory, each probe once, and
  what retrieval compares is embedded.
- *Typical*: all of it is. TYPICAL_REPLAYS for each event, and two for each probe. The whole store is embedded; the
  neighbourhoods of a sample, and of what each event retrieves, are compared.
- *Most*: `max_replays` and the final checks; without it there is no bound. Every neighbourhood is compared.

What a run folder or an earlier run knows of texts and replays is taken off. Which comparisons it knows shows once
neighbours are found: with such a run there may be none at least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_audit.attribution.search.settings import GATE_REPLAYS, TYPICAL_REPLAYS
from memory_audit.consistency.distribution import SAMPLE
from memory_audit.jobs.run.audit_memory import most_checks, searched_texts
from memory_audit.jobs.run.shards import text_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_audit.config import AuditConfig
    from memory_audit.entry import Entry
    from memory_audit.request import TenantEvents

__all__ = ["NOTHING_KNOWN", "Bounds", "Known", "TenantEstimate", "estimate"]

CHARACTERS_PER_TOKEN = 4
"""Of English text. An answer is taken to be as long as the agent lets it be."""

MUTUAL = 0.65
"""Pairs that are compared, for each neighbour of each memory: some have each other (`benchmarks/attribution`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much there will be of something."""

    least: int
    typical: int
    most: int | None
    """None where there is no bound."""

    def __add__(self, other: Bounds) -> Bounds:
        most = None if self.most is None or other.most is None else self.most + other.most
        return Bounds(least=self.least + other.least, typical=self.typical + other.typical, most=most)

    def times(self, factor: float) -> Bounds:
        """Return so many times as much."""
        most = None if self.most is None else round(factor * self.most)
        return Bounds(least=round(factor * self.least), typical=round(factor * self.typical), most=most)

    def without(self, known: int) -> Bounds:
        """Take off what is known."""
        most = None if self.most is None else max(self.most - known, 0)
        return Bounds(least=max(self.least - known, 0), typical=max(self.typical - known, 0), most=most)

    def up_to(self, most: int | None) -> Bounds:
        """Return the bounds where there is never more than that; None is no limit."""
        if most is None:
            return self
        top = most if self.most is None else min(self.most, most)
        return Bounds(least=min(self.least, most), typical=min(self.typical, most), most=top)


NONE = Bounds(least=0, typical=0, most=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantEstimate:
    """Of one tenant, or of all."""

    tenant: str
    """Empty for all."""

    events: int = 0
    """Harmful ones."""

    memories: int = 0
    replays: Bounds = NONE
    """Each sample one."""

    tokens: Bounds = NONE
    """Of prompts and answers, by their characters."""

    pairs: Bounds = NONE
    """For NLI, each asked both ways."""

    texts: Bounds = NONE
    """To embed."""

    failure: str | None = None
    """One line: why it cannot be audited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was answered already."""

    texts: frozenset[str] = frozenset()
    """Embedded, by `memory_audit.jobs.run.shards.text_key`."""

    replays: Mapping[str, int] = field(default_factory=dict)
    """By event, in this very run."""

    compared: bool = False
    """Whether any comparison is known."""


NOTHING_KNOWN = Known()


def estimate(
    tenant: str, entries: Sequence[Entry], events: TenantEvents, config: AuditConfig, known: Known = NOTHING_KNOWN
) -> TenantEstimate:
    """Estimate the audit of one tenant.

    Args:
        tenant: Its name.
        entries: Its live ones, at least one.
        events: What is asked about it.
        config: How.
        known: What was answered already.
    """
    replays = _replays(events, config).without(sum(known.replays.get(event.event_id, 0) for event in events))
    searched = {text_key(text) for text in searched_texts({tenant: entries}, {tenant: events}, config)} - known.texts
    nodes = {entry.text for entry in entries}
    graph = {text_key(text) for text in (*nodes, *(entry.response for entry in entries))} - known.texts
    every = len(searched | graph)
    pairs = _pairs(len(nodes), len(entries), sum(_shown(events, config)), config)
    return TenantEstimate(
        tenant=tenant, events=len(events.harmful), memories=len(entries), replays=replays,
        tokens=replays.times(_tokens(entries, events, config)),
        pairs=Bounds(least=0, typical=pairs.typical, most=pairs.most) if known.compared else pairs,
        texts=Bounds(least=every if config.whole_graph else len(searched), typical=every, most=every),
    )  # fmt: skip


def _shown(events: TenantEvents, config: AuditConfig) -> list[int]:
    """Return how many memories each harmful event shows."""
    return [config.k if event.retrieved is None else len(event.retrieved) for event in events.harmful]


def _replays(events: TenantEvents, config: AuditConfig) -> Bounds:
    harmful, probes = len(events.harmful), len(events.probes)
    each = TYPICAL_REPLAYS * harmful if config.attribution == "set" else sum(_shown(events, config)) + 3 * harmful
    bounded = config.max_replays is not None and config.attribution == "set"
    most = (config.max_replays or 0) + most_checks(events) if bounded else None
    return Bounds(least=GATE_REPLAYS * harmful + probes, typical=each + 2 * probes, most=None).up_to(most)


def _pairs(nodes: int, entries: int, shown: int, config: AuditConfig) -> Bounds:
    """Return how many pairs of unlike texts are compared, in a store of so many."""
    every_pair = entries <= config.all_pairs_below
    width = nodes - 1 if every_pair else min(config.neighbours, nodes - 1)
    top = nodes * (nodes - 1) // 2
    usual = top if every_pair else min(math.ceil(MUTUAL * nodes * width), top)
    most = min(nodes * width, top)
    if config.whole_graph:
        return Bounds(least=math.ceil(nodes * width / 2), typical=usual, most=most)
    rows = min(SAMPLE + shown, nodes)
    return Bounds(least=0, typical=min(rows * width, usual), most=most)


def _tokens(entries: Sequence[Entry], events: TenantEvents, config: AuditConfig) -> float:
    """Return the tokens of one replay, of prompt and answer."""
    memory = sum(len(entry.text) for entry in entries) / len(entries)
    queries = sum(len(event.query) for event in events.harmful) / len(events.harmful)
    agent = sum(len(value) for value in config.agent.values() if isinstance(value, str))
    prompt = agent + queries + memory * sum(_shown(events, config)) / len(events.harmful)
    answer = config.agent.get("max_tokens", 0)
    return prompt / CHARACTERS_PER_TOKEN + (answer if isinstance(answer, int) else 0)
