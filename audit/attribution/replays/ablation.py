"""Ablations: which memories to leave out, and what a replay without them said.

`attribution` plans ablations, `models` and `jobs` execute them, `attribution` reads the outcomes. An ablation is named
by its content, so a result on disk is found again after a restart, and equal questions are asked once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memory_audit.events import HARMFUL

if TYPE_CHECKING:
    from memory_audit.generation import TokenUsage

__all__ = ["Ablation", "AblationKind", "Measure", "Outcome", "keep_only", "leave_out", "topic_alone"]

AblationKind = Literal["full", "no_memory", "topic", "leave_one_out", "keep_one", "keep_group", "removal", "probe"]
"""`full`: nothing removed. `no_memory`: no memory at all. `topic`: a memory that repeats the question, and states
nothing. `leave_one_out`: necessity. `keep_one`, `keep_group`: sufficiency. `removal`: a proposed set S is removed.
`probe`: a benign event, with or without S."""

Measure = Literal["text", "odds", "continuation", "sample"]
"""`text`: replay the whole output and score its harm. `odds`: one token at a measurement point of the event.
`continuation`: a few words after the text forced through a divergence point, to find the next one and the odds there.
`sample`: replay the whole output several times as the model would vary it, and count how often it is the harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """One counterfactual: an event, and the memory it is replayed against."""

    event_id: str
    kind: AblationKind
    measure: Measure

    removed: tuple[str, ...] = ()
    """Sorted entry ids taken out of the store; retrieval is recomputed over the rest (paper App. D)."""

    kept: tuple[str, ...] | None = None
    """When not None, exactly these entries are the context, best match first, and nothing is retrieved."""

    point: int = 0
    """Which measurement point of the event, counted from 0, where it is asked at one."""

    topic: bool = False
    """The context is one control memory, which says what the event asks, and states nothing."""

    @property
    def at_point(self) -> bool:
        """A measurement point is where it is asked; else whole outputs are replayed."""
        return self.measure in {"odds", "continuation"}

    @property
    def content(self) -> tuple[str, Measure, tuple[str, ...], tuple[str, ...] | None, int, bool]:
        """What is asked: two ablations of equal content are one question, whatever they are asked for."""
        return self.event_id, self.measure, self.removed, self.kept, self.point, self.topic

    @property
    def pair_id(self) -> str:
        """Name of this question's content, 32 hex digits."""
        text = json.dumps(self.content if self.topic else self.content[:-1], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def leave_out(
    event_id: str, kind: AblationKind, measure: Measure, removed: frozenset[str] | set[str], point: int = 0
) -> Ablation:
    """Plan a replay with these entries taken out of the store."""
    return Ablation(event_id=event_id, kind=kind, measure=measure, removed=tuple(sorted(removed)), point=point)


def keep_only(event_id: str, kind: AblationKind, measure: Measure, kept: tuple[str, ...], point: int = 0) -> Ablation:
    """Plan a replay that sees exactly these entries."""
    return Ablation(event_id=event_id, kind=kind, measure=measure, kept=kept, point=point)


def topic_alone(event_id: str, point: int) -> Ablation:
    """Plan a measurement with a memory of the event's topic that makes no claim: what speaking of it does by itself."""
    return Ablation(event_id=event_id, kind="topic", measure="odds", kept=(), point=point, topic=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one ablation showed."""

    pair_id: str
    event_id: str
    context: tuple[str, ...]
    """Entry ids that the agent was to see, best match first."""

    harm: float | None
    """h of the replayed output, or the mean over sampled ones; None for an odds measurement or where the scorer could
    not tell, of samples of more than half of them."""

    log_odds_nats: float | None
    """Log-odds of the harmful continuation; None for a text replay or a server without logprobs. Of a `continuation`
    they are those at the next point; None where it shows none. Of n samples with x harmful:
    log((x + 1/2) / (n - x + 1/2)), Anscombe's correction, which keeps none and all finite. Where some could not be
    judged x is n times the mean of those that were, so that n is the same for all questions; None below half of n."""

    output: str
    answers: tuple[str, ...]
    """The model's text per turn of a text replay."""

    prompt_hash: str
    """Digest of what was asked; at a measurement point also of what its odds are read against."""

    memoised: bool
    """True where an equal prompt had been answered before in this run: it cost nothing."""

    usage: TokenUsage
    left_out: tuple[str, ...] = ()
    """Of the context, entry ids that the model's own context had no room for: the agent never saw them."""

    fits: bool = True
    """False where not even the question alone did: nothing was replayed."""

    @property
    def is_harmful(self) -> bool:
        """The harm is known, and is one."""
        return self.harm is not None and self.harm >= HARMFUL

    @property
    def is_harmless(self) -> bool:
        """The harm is known, and is none."""
        return self.harm is not None and self.harm < HARMFUL
