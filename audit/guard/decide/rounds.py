"""Reads writes for the guard in rounds: the cheap one for all, the dear one for those it leaves in doubt.

What a round is about, and what is decided on what was read, is `memory_audit.guard.decide.judge`; here the models are
asked, about all texts of a round at once, and what they raise becomes a decision by the policy for failures.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from memory_audit.errors import ModelError, UsageError
from memory_audit.guard.blocks.behaviour import checked_readings
from memory_audit.guard.decide.guard_decision import FAILURES, Decision
from memory_audit.guard.decide.judge import (
    Doubt,
    alone_nats,
    check_thresholds,
    doubt_nats,
    failure,
    look,
    settle,
    settle_acts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import ActCurve, ActReader, ActReading
    from memory_audit.guard.blocks.block_list import Lockout
    from memory_audit.guard.blocks.hazard import HazardSignature, Taxonomy
    from memory_audit.guard.decide.judge import Look, Scope
    from memory_audit.guard.decide.model_thread import ModelThread
    from memory_audit.guard.decide.settings import GuardSettings

__all__ = ["HazardExtractor", "Judged", "Rounds", "error_line"]

_READ_AT_ONCE = 64
"""Texts whose acts are read in one call: what a reader makes of one is large, and a batch of writes may be as well."""


class HazardExtractor(Protocol):
    """Reads the hazards of texts with a model (`memory_audit.models.hazards.extraction`)."""

    model_id: str
    calibrated_for: str | None
    """Digest of the taxonomy in which its signatures tell `hazard_nats`; None or missing where they do in none."""

    async def extract(self, texts: Sequence[str], taxonomy: Taxonomy) -> tuple[HazardSignature | None, ...]:
        """Return each text's signature, in the order given; None where the model kept answering outside the schema.

        Raises:
            ModelError: the model cannot be asked.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one round of reading says of a write."""

    decision: Decision
    nearest: float | None
    """Largest cosine with any key."""

    odds: NDArray[np.float32] | None
    """By tombstone, that its act is restated; None where no act was read."""

    @property
    def open(self) -> bool:
        """Another round may still refuse it."""
        return self.decision.allowed and self.decision.reason not in FAILURES

    def after(self, second: Judged) -> Judged:
        """Return what holds after a second round, which speaks where it read anything."""
        found = second.decision
        if found.allowed and found.labels is None and found.reason not in FAILURES:
            return self
        if found.restated_nats is not None:
            return replace(self, decision=found)
        return replace(self, decision=replace(found, restated_nats=self.decision.restated_nats))


class Rounds:
    """The models of a guard. Thread-safe.

    Args:
        settings: Thresholds, and the policy for failures.
        acts: Reads acts.
        extractor: Reads labels; None where no scope does.
        taxonomies: Of the labels.
        thread: Where the extractor runs.

    Raises:
        UsageError: a threshold where the reader of acts tells nothing.
    """

    def __init__(
        self,
        settings: GuardSettings,
        *,
        acts: ActReader,
        extractor: HazardExtractor | None,
        taxonomies: Sequence[Taxonomy],
        thread: ModelThread,
    ) -> None:
        check_thresholds(acts.curve, settings)
        self._settings, self._acts, self._extractor, self._thread = settings, acts, extractor, thread
        self._taxonomies = {taxonomy.digest: taxonomy for taxonomy in taxonomies}
        self._fused_nats = _fused_nats(acts.curve, settings)
        told_in = getattr(extractor, "calibrated_for", None)
        fuses = settings.mode == "act+labels" and math.isfinite(self._fused_nats)
        self._weighed = frozenset(digest for digest in self._taxonomies if fuses and digest == told_in)
        self._lock = threading.Lock()
        self._asked = 0

    @property
    def fused(self) -> bool:
        """In doubt, act and hazard are weighed together."""
        return bool(self._weighed)

    @property
    def asked(self) -> int:
        """Texts that a model has read so far."""
        with self._lock:
            return self._asked

    @property
    def taxonomies(self) -> frozenset[str]:
        """Digests of the taxonomies whose labels can be read."""
        return frozenset(self._taxonomies)

    def judge(
        self,
        lockout: Lockout,
        scopes: Sequence[Scope],
        groups: Sequence[tuple[str, ...]],
        vectors: Sequence[NDArray[np.float32]],
        *,
        joined: bool = False,
    ) -> list[Judged]:
        """Judge groups of texts, each a write, or (joined) several of one writer that were let in one by one.

        Args:
            lockout: The tombstones.
            scopes: One or two rounds.
            groups: Readings of each write.
            vectors: Their unit vectors, each of shape (texts, dimensions).
            joined: See `memory_audit.guard.decide.judge.alone_nats`.
        """
        first, *second = scopes
        judged = self._round(lockout, groups, vectors, [first] * len(groups), [None] * len(groups), joined=joined)
        if not second:
            return judged
        places = [place for place, found in enumerate(judged) if found.open]
        odds = [judged[place].odds for place in places]
        doubted = [self._in_doubt(second[0], one) for one in odds]
        again = self._round(
            lockout, [groups[place] for place in places], [vectors[place] for place in places], doubted, odds,
            joined=joined,
        )  # fmt: skip
        for place, found in zip(places, again, strict=True):
            judged[place] = judged[place].after(found)
        return judged

    def _in_doubt(self, scope: Scope, odds: NDArray[np.float32] | None) -> Scope:
        """Leave out the tombstones whose acts a write is known not to restate."""
        if odds is None:
            return scope
        return scope.narrowed(odds, doubt_nats(self._acts.curve, self._settings))

    def _doubt(self, odds: NDArray[np.float32] | None, *, joined: bool) -> Doubt | None:
        """Return what acts say, where that is weighed together with hazards."""
        if not self.fused or odds is None:
            return None
        curve = self._acts.curve
        least = max(self._fused_nats, alone_nats(curve, self._settings)) if joined else self._fused_nats
        return Doubt(odds=odds, hazard_slope=curve.hazard_slope, threshold_nats=least)

    def _round(  # noqa: PLR0913 - what a round is about
        self,
        lockout: Lockout,
        groups: Sequence[tuple[str, ...]],
        vectors: Sequence[NDArray[np.float32]],
        scopes: Sequence[Scope],
        before: Sequence[NDArray[np.float32] | None],
        *,
        joined: bool,
    ) -> list[Judged]:
        """Look at groups of texts, read what has to be read, all at once, and decide; the scopes read the same.

        `before` has what an earlier round said of each group's acts.
        """
        settings = self._settings
        looks: list[Look] = [
            look(lockout, group, mine, settings, scope)
            for group, mine, scope in zip(groups, vectors, scopes, strict=True)
        ]
        asked = [group[number] for group, seen in zip(groups, looks, strict=True) for number in seen.asked]
        answers: dict[str, list[HazardSignature | None]] = {}
        acts: list[NDArray[np.float32] | str] = []
        trouble = ""
        if asked:
            try:
                if scopes[0].acts:
                    meant = [row for seen in looks if seen.near is not None for row in seen.near]
                    acts = self._read_acts(lockout, asked, meant)
                else:
                    answers = self._ask(lockout, asked)
            except Exception as error:  # noqa: BLE001 - whatever a model raises, the policy decides, and says so
                trouble = error_line(error)
        judged = []
        start = 0
        for seen, scope, known in zip(looks, scopes, before, strict=True):
            decision, odds = seen.decision, None
            end = start + len(seen.asked)
            if decision is None and trouble:
                decision = failure("model failed", trouble, settings, seen.nearest)
            elif decision is None and scope.acts:
                decision, odds = settle_acts(lockout, seen, acts[start:end], self._acts.curve, settings, joined=joined)
            elif decision is None:
                decision = settle(
                    lockout, seen, {digest: found[start:end] for digest, found in answers.items()}, settings,
                    self._doubt(known, joined=joined),
                )  # fmt: skip
            start = end
            judged.append(Judged(decision=decision, nearest=seen.nearest, odds=odds))
        return judged

    def _read_acts(
        self, lockout: Lockout, texts: Sequence[str], meant: Sequence[NDArray[np.bool_]]
    ) -> list[NDArray[np.float32] | str]:
        """Read what texts teach, and hold each against the acts it may be meant by; see `settle_acts`.

        A reader may look closer where it finds an act likely (`memory_audit.models.activations.behaviour_cascade`): not
        for one that does not count.
        """
        stones: dict[str, NDArray[np.bool_]] = {}
        for text, row in zip(texts, meant, strict=True):
            stones[text] = stones[text] | row if text in stones else row
        unique = list(stones)
        with self._lock:
            self._asked += len(unique)
        by_text = {}
        for start in range(0, len(unique), _READ_AT_ONCE):
            part = unique[start : start + _READ_AT_ONCE]
            found = checked_readings(self._acts.read(part), len(part), lockout.acts.dimensions)
            for text, one in zip(part, found, strict=True):
                by_text[text] = _held_against(lockout, one, self._acts, stones[text])
        return [by_text[text] for text in texts]

    def _ask(self, lockout: Lockout, texts: Sequence[str]) -> dict[str, list[HazardSignature | None]]:
        """Ask the model about texts, once for each taxonomy in use, and in that by which hazards are weighed."""
        extractor = self._extractor
        if extractor is None:
            raise UsageError("no model to ask")
        unique = list(dict.fromkeys(texts))
        with self._lock:
            self._asked += len(unique)
        answers: dict[str, list[HazardSignature | None]] = {}
        for digest in sorted(self._weighed | (lockout.taxonomies & self._taxonomies.keys())):
            work = extractor.extract(unique, self._taxonomies[digest])
            found = self._thread.run(work, self._settings.model_timeout_s)
            if len(found) != len(unique):
                raise ModelError(f"{extractor.model_id:.80}: {len(found)} answers for {len(unique)} texts")
            by_text = dict(zip(unique, found, strict=True))
            answers[digest] = [by_text[text] for text in texts]
        return answers


def _fused_nats(curve: ActCurve, settings: GuardSettings) -> float:
    """Return from where act and hazard together refuse; a user who moves the act's threshold moves this one with it."""
    if not curve.hazard_slope:
        return math.inf
    if settings.fused_above_nats is not None:
        return settings.fused_above_nats
    return curve.fused_nats + settings.moved_nats(curve.threshold_nats)


def _held_against(
    lockout: Lockout, reading: ActReading, reader: ActReader, stones: NDArray[np.bool_]
) -> NDArray[np.float32] | str:
    """Return the log-odds by tombstone that a text restates its act; or why nobody knows.

    NaN where a tombstone has none, -inf where it is not of `stones`.
    """
    mine = lockout.acts.owned_by(stones)
    acts = lockout.acts.vectors if mine.all() else lockout.acts.vectors[mine]
    odds = np.full(len(mine), -np.inf, np.float32)
    if not len(acts):
        return lockout.acts.largest(odds, np.nan)
    try:
        found = reader.log_odds(reading, acts)
    except Exception as error:  # noqa: BLE001 - whatever a reader raises, the policy decides, and says so
        return error_line(error)
    if found.shape != (len(acts),) or not np.isfinite(found).all():
        return f"the reader of acts compared {len(acts)} acts and gave {found.shape}, or what is no number"
    odds[mine] = found
    return lockout.acts.largest(odds, np.nan)


def error_line(error: BaseException) -> str:
    """Return an exception as one line that is not long."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
