"""What the guard decides, as functions from values to values: a look at the keys, then a verdict on what was read.

`scopes` says in which rounds a mode reads a write, the cheap one first. `prefilter` needs vectors and no model; it
either decides or names the texts that a model has to read. `decide_hazards` takes the labels that a model gave them,
`decide_behaviours` the behaviours that were read. All are pure, so that a guard with its threads and caches is as easy
to test as its rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import HazardSignature
from memory_audit.guard.decide.guard_decision import GuardDecision
from memory_audit.guard.text.forms import is_foreign

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import BehaviourCurve
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.decide.guard_decision import GuardReason
    from memory_audit.guard.decide.settings import GuardMode, GuardSettings

__all__ = [
    "Doubt",
    "Prefiltered",
    "ReadScope",
    "alone_nats",
    "check_thresholds",
    "decide_behaviours",
    "decide_hazards",
    "doubt_nats",
    "failure",
    "most_read",
    "prefilter",
    "scopes",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadScope:
    """One round of reading: what is read, and for which tombstones; arrays have shape (tombstones,)."""

    behaviours: bool
    """Behaviours are read, else labels."""

    not_comparable: NDArray[np.bool_]
    """Those that nothing read in this round can match."""

    key_only: NDArray[np.bool_]
    """Those for which a near key refuses alone, since nothing of theirs can be read."""

    def narrowed(self, odds: NDArray[np.float32], doubt_nats: float) -> ReadScope:
        """Return it without the tombstones whose behaviour a write is known not to restate.

        Args:
            odds: Log-odds that it does, from `decide_behaviours`; NaN where a tombstone has no behaviour.
            doubt_nats: From where that is in doubt.
        """
        return replace(self, not_comparable=self.not_comparable | (odds < doubt_nats))


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What the behaviours of a write say, where that neither refuses it nor lets it through."""

    odds: NDArray[np.float32]
    """Log-odds by tombstone that its behaviour is restated, from `decide_behaviours`."""

    hazard_slope: float
    """Nats for a nat of hazard."""

    threshold_nats: float
    """Log-odds of both together from which the write is refused."""

    def fused(self, hazard_nats: float, within_read: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return the log-odds with a hazard that its reader found, by tombstone; -inf for those not in doubt."""
        doubted = within_read & np.isfinite(self.odds)
        return np.where(doubted, self.odds + np.float32(self.hazard_slope * hazard_nats), np.float32(-np.inf))


def scopes(
    block_list: BlockList, mode: GuardMode, taxonomies: Collection[str], *, fused: bool = False
) -> tuple[ReadScope, ...]:
    """Return the rounds of a mode; a later one is for writes that those before let through.

    With `fused` labels speak also where a tombstone has none: with its behaviour.
    """
    unread, unlabelled = block_list.behaviours.keyless, block_list.unlabelled(taxonomies)
    if mode == "behaviour":
        return (ReadScope(behaviours=True, not_comparable=unread, key_only=unread),)
    nobody = np.zeros(len(block_list), np.bool_)
    return (
        ReadScope(behaviours=True, not_comparable=unread, key_only=unread & unlabelled),
        ReadScope(behaviours=False, not_comparable=unlabelled & unread if fused else unlabelled, key_only=nobody),
    )


def most_read(scope: ReadScope, settings: GuardSettings) -> int:
    """Return how many forms of one write a model reads in a round."""
    return settings.read_at_most if scope.behaviours else settings.asked_at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefiltered:
    """What similarity says of one write."""

    decision: GuardDecision | None
    """Final where no model has to be asked."""

    nearest: float | None
    """Largest cosine with any key; None where none was computed."""

    asked: tuple[int, ...] = ()
    """Texts that a model has to read, nearest first."""

    within_read: NDArray[np.bool_] | None = None
    """Shape (asked, tombstones): which tombstones each of them may be meant by."""

    within_refuse: NDArray[np.bool_] | None = None
    """Those of them whose keys are near, or cannot tell."""

    similarity: NDArray[np.float32] | None = None
    """Shape (asked, tombstones)."""

    left_out: int = 0
    """Texts that a model should have read, beyond the most that may be asked."""


def prefilter(
    block_list: BlockList,
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    settings: GuardSettings,
    scope: ReadScope,
) -> Prefiltered:
    """Compare texts with the tombstones' keys.

    Args:
        block_list: The tombstones.
        texts: Forms of one write.
        vectors: Their unit vectors, shape (texts, dimensions).
        settings: Thresholds.
        scope: What is read.
    """
    if not len(block_list):
        return Prefiltered(decision=GuardDecision(allowed=True, reason="no tombstones"), nearest=None)
    if not texts:
        return Prefiltered(decision=GuardDecision(allowed=True, reason="far from every tombstone"), nearest=None)
    not_comparable = scope.not_comparable
    most = most_read(scope, settings)
    above = min(settings.read_above, settings.look_above) if scope.behaviours else settings.look_above
    similarity = block_list.keys.similarity(vectors)
    nearest = float(similarity.max())
    if nearest >= settings.key_alone_above:
        alone = np.where(scope.key_only, similarity, np.float32(-1))
        place = int(alone.argmax())
        stone = place % len(block_list)
        if float(alone.flat[place]) >= settings.key_alone_above:
            return Prefiltered(
                decision=GuardDecision(
                    allowed=False,
                    reason="key alone",
                    tombstone=block_list.stones[stone],
                    similarity=float(alone.flat[place]),
                ),
                nearest=nearest,
            )
    far = Prefiltered(
        decision=GuardDecision(allowed=True, reason="far from every tombstone", similarity=nearest), nearest=nearest
    )  # fmt: skip
    # What is near a tombstone that cannot be compared would take the place of what another may be meant by.
    nearest_of = np.where(not_comparable, np.float32(-2), similarity).max(axis=1)
    always = (
        block_list.keys.keyless & ~not_comparable
    )  # keys that this embedder cannot compare: what is read alone can speak
    candidates = [
        number for number, text in enumerate(texts) if nearest_of[number] >= above or always.any() or is_foreign(text)
    ]
    if not candidates or not_comparable.all():
        return far
    candidates.sort(key=lambda number: -nearest_of[number])
    asked = tuple(candidates[:most])
    rows = similarity[list(asked)]
    strange = np.asarray([is_foreign(texts[number]) for number in asked])[:, None]
    within_read, within_refuse = (
        ((rows >= least) | always | strange) & ~not_comparable for least in (above, settings.look_above)
    )
    return Prefiltered(
        decision=None,
        nearest=nearest,
        asked=asked,
        within_read=within_read,
        within_refuse=within_refuse,
        similarity=rows,
        left_out=len(candidates) - len(asked),
    )


def decide_hazards(
    block_list: BlockList,
    seen: Prefiltered,
    signatures: Mapping[str, Sequence[HazardSignature | None]],
    settings: GuardSettings,
    doubt: Doubt | None = None,
) -> GuardDecision:
    """Decide on what the model said.

    Args:
        block_list: The tombstones.
        seen: From `prefilter`, with texts to ask about.
        signatures: Taxonomy digest to the signature of each asked text; None where the model gave none.
        settings: The policy for failures.
        doubt: What the behaviours said, where that is weighed together with the hazards.
    """
    if seen.within_read is None:
        raise ValueError("nothing was asked")
    labels: set[str] = set()
    unknown = 0
    hazard: float | None = None
    fused: float | None = None
    for found in signatures.values():
        rows = [(signature, seen.within_read[row]) for row, signature in enumerate(found) if signature is not None]
        unknown += len(found) - len(rows)
        if not rows:
            continue
        labels.update(label for signature, _ in rows for label in signature.labels)
        told = [(one.hazard_nats, within_read) for one, within_read in rows if one.hazard_nats is not None]
        hazard = max((nats for nats, _ in told), default=hazard)
        if len(rows) > 1:  # a behaviour may be spread over the pieces of one write
            union = frozenset().union(*(signature.labels for signature, _ in rows))
            whole = HazardSignature(labels=union, taxonomy=rows[0][0].taxonomy, model=rows[0][0].model)
            rows.append((whole, np.any([within_read for _, within_read in rows], axis=0)))
        odds = np.full(len(block_list), -np.inf, np.float32)
        if doubt is not None and told:
            odds = np.max([doubt.fused(nats, within_read) for nats, within_read in told], axis=0)
            fused = float(odds.max()) if np.isfinite(odds).any() else None
        weighed = np.isfinite(odds)  # a label is not heard a second time beside its hazard
        refusal = GuardDecision(
            allowed=False, reason="hazards match", labels=frozenset(labels), similarity=seen.nearest,
            hazard_nats=hazard, fused_nats=fused,
        )  # fmt: skip
        for signature, within_read in rows:
            hits = block_list.matching(signature) & within_read & ~weighed
            if hits.any():
                return replace(refusal, tombstone=block_list.stones[_nearest(seen, hits)])
        if doubt is not None and (hits := odds >= doubt.threshold_nats).any():
            return replace(
                refusal, reason="behaviour and hazard", tombstone=block_list.stones[_nearest(seen, hits)],
                restated_nats=float(doubt.odds[hits].max()),
            )  # fmt: skip
    if unknown:
        return failure("model failed", f"the model gave no usable answer for {unknown} texts", settings, seen.nearest)
    if seen.left_out:
        return _too_long(seen, settings)
    return GuardDecision(
        allowed=True, reason="hazards differ" if labels else "no hazard", labels=frozenset(labels),
        similarity=seen.nearest, hazard_nats=hazard, fused_nats=fused,
    )  # fmt: skip


def decide_behaviours(  # noqa: PLR0913 - what a decision hangs on
    block_list: BlockList,
    seen: Prefiltered,
    found: Sequence[NDArray[np.float32] | str],
    curve: BehaviourCurve,
    settings: GuardSettings,
    *,
    joined: bool = False,
) -> tuple[GuardDecision, NDArray[np.float32]]:
    """Decide on the behaviours that were read.

    Args:
        block_list: The tombstones.
        seen: From `prefilter`, with texts to read.
        found: Of each of these texts the log-odds by tombstone that it restates its behaviour, NaN where there is none
            that could be compared; or a line that says why the reader could not tell.
        curve: The reader's.
        settings: The mode; the thresholds, where they are not the curve's; and the policy for failures.
        joined: The texts are of several writes, each of which was let in.

    Returns:
        The decision, and the log-odds of the whole write, by tombstone.
    """
    if seen.within_read is None or seen.within_refuse is None:
        raise ValueError("nothing was read")
    odds = np.full((2, len(block_list)), -np.inf, np.float32)  # of all texts, and of those near the key
    for told, within_read, within_refuse in zip(found, seen.within_read, seen.within_refuse, strict=True):
        if not isinstance(told, str):
            odds = np.fmax(odds, np.where([within_read, within_refuse], told, np.float32(-np.inf)))
    unknown = [told for told in found if isinstance(told, str)]
    largest = float(odds.max())
    by_stone = np.where(block_list.behaviours.keyless, np.float32(np.nan), odds[0])
    restated = None if math.isinf(largest) else largest
    behaviour_nats = alone_nats(curve, settings)
    near_nats = behaviour_nats if joined else _near_nats(curve, settings)
    hits = (odds[0] >= behaviour_nats) | (odds[1] >= near_nats)
    if hits.any():
        decision = GuardDecision(
            allowed=False, reason="behaviour restated", tombstone=block_list.stones[_nearest(seen, hits)],
            similarity=seen.nearest, restated_nats=largest,
        )  # fmt: skip
    elif unknown:
        decision = failure("model failed", unknown[0], settings, seen.nearest)
    elif seen.left_out:
        decision = _too_long(seen, settings)
    else:
        decision = GuardDecision(
            allowed=True, reason="another behaviour", similarity=seen.nearest, restated_nats=restated
        )
    return decision, by_stone


def alone_nats(curve: BehaviourCurve, settings: GuardSettings) -> float:
    """Return from where a behaviour refuses with no other evidence.

    Writes that are read together need as much, whatever else speaks against them: what is less is fitted on single
    notes, and five honest notes on one matter have five times the chance to look like more.
    """
    return curve.threshold_nats if settings.behaviour_above_nats is None else settings.behaviour_above_nats


def doubt_nats(curve: BehaviourCurve, settings: GuardSettings) -> float:
    """Return from where a behaviour is in doubt."""
    return curve.doubt_nats if settings.doubt_above_nats is None else settings.doubt_above_nats


def check_thresholds(curve: BehaviourCurve, settings: GuardSettings) -> None:
    """Raise for thresholds where the reader of behaviours tells nothing.

    Raises:
        UsageError: a user's threshold, or one that moved with it, is below `BehaviourCurve.least_nats`.
    """
    used = {"behaviour_above_nats": alone_nats(curve, settings)}
    if settings.mode == "behaviour":
        used["near_above_nats"] = _near_nats(curve, settings)
    if settings.doubt_above_nats is not None:
        used["doubt_above_nats"] = settings.doubt_above_nats
    for name, nats in used.items():
        if nats < curve.least_nats:
            moved = " (moved with behaviour_above_nats)" if getattr(settings, name) is None else ""
            raise UsageError(
                f"{name} is {nats:g}{moved}, expected {curve.least_nats:g} or more: below that this reader of "
                "behaviours cannot tell writes apart"
            )


def _near_nats(curve: BehaviourCurve, settings: GuardSettings) -> float:
    """Return from where a behaviour refuses where its key is near.

    Who moves the threshold alone moves this one with it.
    """
    if settings.mode != "behaviour":
        return alone_nats(curve, settings)
    if settings.near_above_nats is not None:
        return settings.near_above_nats
    return curve.near_nats + settings.moved_nats(curve.threshold_nats)


def failure(reason: GuardReason, why: str, settings: GuardSettings, similarity: float | None = None) -> GuardDecision:
    """Return what the policy for failures makes of a write that could not be judged."""
    allowed = settings.on_failure == "open"
    return GuardDecision(
        allowed=allowed, reason=reason, similarity=similarity,
        detail=f"{why}; {'let through' if allowed else 'refused'} by policy ({settings.on_failure})",
    )  # fmt: skip


def _too_long(seen: Prefiltered, settings: GuardSettings) -> GuardDecision:
    why = f"{seen.left_out} texts were not read: at most {len(seen.asked)} are"
    return failure("too long", why, settings, seen.nearest)


def _nearest(seen: Prefiltered, hits: NDArray[np.bool_]) -> int:
    """Return which of the tombstones that match is nearest: the one to name."""
    if seen.similarity is None:
        return int(hits.argmax())
    return int(np.where(hits, seen.similarity.max(axis=0), np.float32(-2)).argmax())
