"""How a guard decides: mode, thresholds, limits and what happens when a model fails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from memory_audit.errors import UsageError

__all__ = ["GuardMode", "GuardSettings", "HistorySettings", "OnFailure"]

GuardMode = Literal["behaviour", "behaviour+hazards"]
"""What is read of a write: what it teaches (`blocks.behaviour`); and, where that leaves doubt, its hazards."""

OnFailure = Literal["closed", "open"]


@dataclass(frozen=True, kw_only=True)
class HistorySettings:
    """How long earlier writes count, and for what."""

    recent_writes: int = 4
    """Earlier writes of one writer that are read together with a new one; 0 reads each write alone."""

    recent_s: float = 900.0
    """How long a write counts as recent."""

    distrust_after: int = 2
    """Writes of one writer, of different content, that were refused for what they say in `refusals_s`: from then on
    what that writer's behaviours leave in doubt is refused; 0: never."""

    alarm_after: int = 2
    """Likewise for one removal, by whomever: from then on what may restate its behaviour is refused to all."""

    refusals_s: float = 86_400.0
    """How long a refusal counts for these."""


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """Which texts of a write are read."""

    look_above: float = 0.25
    """Cosine with a key below which a tombstone is not meant where hazards are read, which saves calls of a large
    model. With MiniLM, half of the unrelated records of one trade lie below it; of 50 paraphrases written
    independently of the removed texts all lie above (`benchmarks/guard/hst`), of 2,040 plain ones of 1,020 other
    behaviours nine in ten, of those in other languages few. Where behaviours are read this is too much to ask: mode
    `behaviour` asks less of the behaviour where one is as near."""

    read_above: float = 0.1
    """Cosine with a key below which a tombstone is not meant where behaviours are read; `look_above` where that is
    lower. Of the pairs of a turn of MemoryBank and one of 45 behaviours nine in ten lie below it, and of restatements
    of 940 other behaviours three in a thousand (what looks foreign is read whatever its key says); ordinary talk is
    where readers of behaviours err. -1 has every write read."""

    key_alone_above: float = 0.75
    """Cosine that refuses by itself where a tombstone has nothing else to match: no behaviour, no labels that are
    read."""

    join_above: float = 0.25
    """Cosine with a key from which a write counts as a possible instalment."""

    asked_at_most: int = 10
    """Forms of one write shown to the model, nearest first: a long write must not cost more than that."""

    read_at_most: int = 80
    """Likewise where behaviours are read, which costs a tenth of a second to half a second each."""


@dataclass(frozen=True, kw_only=True)
class GuardSettings(ReadSettings, HistorySettings):
    """How the guard decides.

    Raises:
        UsageError: a value out of range.
    """

    mode: GuardMode = "behaviour+hazards"
    behaviour_above_nats: float | None = None
    """Log-odds that a write restates a removed behaviour, from which mode `behaviour` refuses it; None is as the reader
    says."""

    near_above_nats: float | None = None
    """Log-odds from which mode `behaviour` refuses a write that lies as near the behaviour's key as `look_above` says;
    likewise."""

    doubt_above_nats: float | None = None
    """Log-odds from which a write that the behaviour does not refuse is in doubt, and mode `behaviour+hazards` asks for
    its labels; likewise."""

    fused_above_nats: float | None = None
    """Log-odds of behaviour and hazard together, from which mode `behaviour+hazards` refuses such a write; likewise.

    Labels decide only for tombstones where these cannot be told; infinite: for all.
    """

    on_failure: OnFailure = "closed"
    """What happens to a write that could not be judged: refused, or let through; the decision says so."""

    model_timeout_s: float = 60.0
    """How long a write waits for the model before that counts as a failure."""

    cached_decisions: int = 65_536
    """For writes that come again, and as many for joint ones: less than a kilobyte each, however long the write."""

    def __post_init__(self) -> None:
        if self.mode not in get_args(GuardMode):
            raise UsageError(f"mode is {self.mode!r:.40}, expected one of {', '.join(get_args(GuardMode))}")
        if self.on_failure not in get_args(OnFailure):
            raise UsageError(f"on_failure is {self.on_failure!r:.40}, expected closed or open")
        for name in ("look_above", "read_above", "key_alone_above", "join_above"):
            if not -1.0 <= getattr(self, name) <= 1.0:
                raise UsageError(f"{name} is {getattr(self, name)}, expected a cosine")
        for name in ("behaviour_above_nats", "near_above_nats", "doubt_above_nats", "fused_above_nats"):
            nats = getattr(self, name)
            if nats is not None and not (math.isfinite(nats) or (name == "fused_above_nats" and nats == math.inf)):
                raise UsageError(f"{name} is {nats}, expected a finite number")
        for name, minimum in (
            ("recent_writes", 0),
            ("recent_s", 0),
            ("distrust_after", 0),
            ("alarm_after", 0),
            ("refusals_s", 0),
            ("asked_at_most", 1),
            ("read_at_most", 1),
            ("cached_decisions", 0),
            ("model_timeout_s", 0),
        ):
            if not getattr(self, name) >= minimum:  # NaN is not
                raise UsageError(f"{name} is {getattr(self, name)}, expected {minimum} or more")
