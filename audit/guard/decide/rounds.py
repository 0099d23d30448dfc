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
from memory_audit.guard.blocks.behaviour import checked_features
from memory_audit.guard.decide.guard_decision import FAILURES, GuardDecision
from memory_audit.guard.decide.judge import (
    Doubt,
    alone_nats,
    check_thresholds,
    decide_behaviours,
    decide_hazards,
    doubt_nats,
    failure,
    prefilter,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import BehaviourCurve, BehaviourFeatures, BehaviourReader
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.blocks.hazard import HazardSignature, Taxonomy
    from memory_audit.guard.decide.judge import Prefiltered, ReadScope
    from memory_audit.guard.decide.model_thread import ModelThread
    from memory_audit.guard.decide.settings import GuardSettings

__all__ = ["HazardExtractor", "Judged", "Rounds", "error_line"]

_READ_AT_ONCE = 64
"""Texts whose behaviours are read in one call: what a reader makes of one is large, and a batch of writes may be as
well."""


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

    decision: GuardDecision
    nearest: float | None
    """Largest cosine with any key."""

    odds: NDArray[np.float32] | None
    """By tombstone, that its behaviour is restated; None where no behaviour was read."""

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
        behaviours: Reads behaviours.
        extractor: Reads labels; None where no scope does.
        taxonomies: Of the labels.
        thread: Where the extractor runs.

    Raises:
        UsageError: a threshold where the reader of behaviours tells nothing.
    """

    def __init__(
        self,
        settings: GuardSettings,
        *,
        behaviours: BehaviourReader,
        extractor: HazardExtractor | None,
        taxonomies: Sequence[Taxonomy],
        thread: ModelThread,
    ) -> None:
        check_thresholds(behaviours.curve, settings)
        self._settings, self._behaviours, self._extractor, self._thread = settings, behaviours, extractor, thread
        self._taxonomies = {taxonomy.digest: taxonomy for taxonomy in taxonomies}
        self._fused_nats = _fused_nats(behaviours.curve, settings)
        told_in = getattr(extractor, "calibrated_for", None)
        fuses = settings.mode == "behaviour+hazards" and math.isfinite(self._fused_nats)
        self._weighed = frozenset(digest for digest in self._taxonomies if fuses and digest == told_in)
        self._lock = threading.Lock()
        self._asked = 0

    @property
    def fused(self) -> bool:
        """In doubt, behaviour and hazard are weighed together."""
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
        block_list: BlockList,
        scopes: Sequence[ReadScope],
        groups: Sequence[tuple[str, ...]],
        vectors: Sequence[NDArray[np.float32]],
        *,
        joined: bool = False,
    ) -> list[Judged]:
        """Judge groups of texts, each a write, or (joined) several of one writer that were let in one by one.

        Args:
            block_list: The tombstones.
            scopes: One or two rounds.
            groups: Forms of each write.
            vectors: Their unit vectors, each of shape (texts, dimensions).
            joined: See `memory_audit.guard.decide.judge.alone_nats`.
        """
        first, *second = scopes
        judged = self._round(block_list, groups, vectors, [first] * len(groups), [None] * len(groups), joined=joined)
        if not second:
            return judged
        places = [place for place, found in enumerate(judged) if found.open]
        odds = [judged[place].odds for place in places]
        doubted = [self._in_doubt(second[0], one) for one in odds]
        again = self._round(
            block_list, [groups[place] for place in places], [vectors[place] for place in places], doubted, odds,
            joined=joined,
        )  # fmt: skip
        for place, found in zip(places, again, strict=True):
            judged[place] = judged[place].after(found)
        return judged

    def _in_doubt(self, scope: ReadScope, odds: NDArray[np.float32] | None) -> ReadScope:
        """Leave out the tombstones whose behaviours a write is known not to restate."""
        if odds is None:
            return scope
        return scope.narrowed(odds, doubt_nats(self._behaviours.curve, self._settings))

    def _doubt(self, odds: NDArray[np.float32] | None, *, joined: bool) -> Doubt | None:
        """Return what behaviours say, where that is weighed together with hazards."""
        if not self.fused or odds is None:
            return None
        curve = self._behaviours.curve
        least = max(self._fused_nats, alone_nats(curve, self._settings)) if joined else self._fused_nats
        return Doubt(odds=odds, hazard_slope=curve.hazard_slope, threshold_nats=least)

    def _round(  # noqa: PLR0913 - what a round is about
        self,
        block_list: BlockList,
        groups: Sequence[tuple[str, ...]],
        vectors: Sequence[NDArray[np.float32]],
        scopes: Sequence[ReadScope],
        before: Sequence[NDArray[np.float32] | None],
        *,
        joined: bool,
    ) -> list[Judged]:
        """Look at groups of texts, read what has to be read, all at once, and decide; the scopes read the same.

        `before` has what an earlier round said of each group's behaviours.
        """
        settings = self._settings
        looks: list[Prefiltered] = [
            prefilter(block_list, group, mine, settings, scope)
            for group, mine, scope in zip(groups, vectors, scopes, strict=True)
        ]
        asked = [group[number] for group, seen in zip(groups, looks, strict=True) for number in seen.asked]
        answers: dict[str, list[HazardSignature | None]] = {}
        behaviours: list[NDArray[np.float32] | str] = []
        trouble = ""
        if asked:
            try:
                if scopes[0].behaviours:
                    meant = [row for seen in looks if seen.within_read is not None for row in seen.within_read]
                    behaviours = self._read_behaviours(block_list, asked, meant)
                else:
                    answers = self._ask(block_list, asked)
            except Exception as error:  # noqa: BLE001 - whatever a model raises, the policy decides, and says so
                trouble = error_line(error)
        judged = []
        start = 0
        for seen, scope, known in zip(looks, scopes, before, strict=True):
            decision, odds = seen.decision, None
            end = start + len(seen.asked)
            if decision is None and trouble:
                decision = failure("model failed", trouble, settings, seen.nearest)
            elif decision is None and scope.behaviours:
                decision, odds = decide_behaviours(
                    block_list, seen, behaviours[start:end], self._behaviours.curve, settings, joined=joined
                )
            elif decision is None:
                decision = decide_hazards(
                    block_list, seen, {digest: found[start:end] for digest, found in answers.items()}, settings,
                    self._doubt(known, joined=joined),
                )  # fmt: skip
            start = end
            judged.append(Judged(decision=decision, nearest=seen.nearest, odds=odds))
        return judged

    def _read_behaviours(
        self, block_list: BlockList, texts: Sequence[str], meant: Sequence[NDArray[np.bool_]]
    ) -> list[NDArray[np.float32] | str]:
        """Read what texts teach, and hold each against the behaviours it may be meant by; see `decide_behaviours`.

        A reader may look closer where it finds a behaviour likely
        (`memory_audit.models.activations.behaviour_cascade`): not for one that does not count.
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
            found = checked_features(self._behaviours.read(part), len(part), block_list.behaviours.dimensions)
            for text, one in zip(part, found, strict=True):
                by_text[text] = _held_against(block_list, one, self._behaviours, stones[text])
        return [by_text[text] for text in texts]

    def _ask(self, block_list: BlockList, texts: Sequence[str]) -> dict[str, list[HazardSignature | None]]:
        """Ask the model about texts, once for each taxonomy in use, and in that by which hazards are weighed."""
        extractor = self._extractor
        if extractor is None:
            raise UsageError("no model to ask")
        unique = list(dict.fromkeys(texts))
        with self._lock:
            self._asked += len(unique)
        answers: dict[str, list[HazardSignature | None]] = {}
        for digest in sorted(self._weighed | (block_list.taxonomies & self._taxonomies.keys())):
            work = extractor.extract(unique, self._taxonomies[digest])
            found = self._thread.run(work, self._settings.model_timeout_s)
            if len(found) != len(unique):
                raise ModelError(f"{extractor.model_id:.80}: {len(found)} answers for {len(unique)} texts")
            by_text = dict(zip(unique, found, strict=True))
            answers[digest] = [by_text[text] for text in texts]
        return answers


def _fused_nats(curve: BehaviourCurve, settings: GuardSettings) -> float:
    """Return from where behaviour and hazard together refuse.

    A user who moves the behaviour's threshold moves this one with it.
    """
    if not curve.hazard_slope:
        return math.inf
    if settings.fused_above_nats is not None:
        return settings.fused_above_nats
    return curve.fused_nats + settings.moved_nats(curve.threshold_nats)


def _held_against(
    block_list: BlockList, reading: BehaviourFeatures, reader: BehaviourReader, stones: NDArray[np.bool_]
) -> NDArray[np.float32] | str:
    """Return the log-odds by tombstone that a text restates its behaviour; or why nobody knows.

    NaN where a tombstone has none, -inf where it is not of `stones`.
    """
    mine = block_list.behaviours.owned_by(stones)
    behaviours = block_list.behaviours.vectors if mine.all() else block_list.behaviours.vectors[mine]
    odds = np.full(len(mine), -np.inf, np.float32)
    if not len(behaviours):
        return block_list.behaviours.largest(odds, np.nan)
    try:
        found = reader.log_odds(reading, behaviours)
    except Exception as error:  # noqa: BLE001 - whatever a reader raises, the policy decides, and says so
        return error_line(error)
    if found.shape != (len(behaviours),) or not np.isfinite(found).all():
        return f"the reader compared {len(behaviours)} behaviours and gave {found.shape}, or what is no number"
    odds[mine] = found
    return block_list.behaviours.largest(odds, np.nan)


def error_line(error: BaseException) -> str:
    """Return an exception as one line that is not long."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
