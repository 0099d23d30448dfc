"""What the guard decides, as functions from values to values: a look at the keys, then a verdict on what was read.

`scopes` says in which rounds a mode reads a write, the cheap one first. `look` needs vectors and no model; it either
decides or names the texts that a model has to read. `settle` takes the labels that a model gave them, `settle_acts` the
acts that were read. All are pure, so that a guard with its threads and caches is as easy to test as its rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.errors import UsageError
from memory_audit.guard.blocks.hazard import HazardSignature
from memory_audit.guard.decide.guard_decision import Decision
from memory_audit.guard.text.forms import is_foreign

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.blocks.behaviour import ActCurve
    from memory_audit.guard.blocks.block_list import Lockout
    from memory_audit.guard.decide.guard_decision import Reason
    from memory_audit.guard.decide.settings import GuardMode, GuardSettings

__all__ = [
    "Doubt", "Look", "Scope", "alone_nats", "check_thresholds", "doubt_nats", "failure", "look", "most_read", "scopes",
    "settle", "settle_acts",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One round of reading: what is read, and for which tombstones; arrays have shape (tombstones,)."""

    acts: bool
    """Acts are read, else labels."""

    mute: NDArray[np.bool_]
    """Those that nothing read in this round can match."""

    by_key: NDArray[np.bool_]
    """Those for which a near key refuses alone, since nothing of theirs can be read."""

    def narrowed(self, odds: NDArray[np.float32], doubt_nats: float) -> Scope:
        """Return it without the tombstones whose act a write is known not to restate.

        Args:
            odds: Log-odds that it does, from `settle_acts`; NaN where a tombstone has no act.
            doubt_nats: From where that is in doubt.
        """
        return replace(self, mute=self.mute | (odds < doubt_nats))


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What the acts of a write say, where that neither refuses it nor lets it through."""

    odds: NDArray[np.float32]
    """Log-odds by tombstone that its act is restated, from `settle_acts`."""

    hazard_slope: float
    """Nats for a nat of hazard."""

    threshold_nats: float
    """Log-odds of both together from which the write is refused."""

    def fused(self, hazard_nats: float, near: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return the log-odds with a hazard that its reader found, by tombstone; -inf for those not in doubt."""
        doubted = near & np.isfinite(self.odds)
        return np.where(doubted, self.odds + np.float32(self.hazard_slope * hazard_nats), np.float32(-np.inf))


def scopes(lockout: Lockout, mode: GuardMode, taxonomies: Collection[str], *, fused: bool = False) -> tuple[Scope, ...]:
    """Return the rounds of a mode; a later one is for writes that those before let through.

    With `fused` labels speak also where a tombstone has none: with its act.
    """
    actless, unlabelled = lockout.acts.keyless, lockout.unlabelled(taxonomies)
    if mode == "act":
        return (Scope(acts=True, mute=actless, by_key=actless),)
    nobody = np.zeros(len(lockout), np.bool_)
    return (
        Scope(acts=True, mute=actless, by_key=actless & unlabelled),
        Scope(acts=False, mute=unlabelled & actless if fused else unlabelled, by_key=nobody),
    )


def most_read(scope: Scope, settings: GuardSettings) -> int:
    """Return how many readings of one write a model reads in a round."""
    return settings.read_at_most if scope.acts else settings.asked_at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What similarity says of one write."""

    decision: Decision | None
    """Final where no model has to be asked."""

    nearest: float | None
    """Largest cosine with any key; None where none was computed."""

    asked: tuple[int, ...] = ()
    """Texts that a model has to read, nearest first."""

    near: NDArray[np.bool_] | None = None
    """Shape (asked, tombstones): which tombstones each of them may be meant by."""

    close: NDArray[np.bool_] | None = None
    """Those of them whose keys are near, or cannot tell."""

    similarity: NDArray[np.float32] | None = None
    """Shape (asked, tombstones)."""

    left_out: int = 0
    """Texts that a model should have read, beyond the most that may be asked."""


def look(
    lockout: Lockout,
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    settings: GuardSettings,
    scope: Scope,
) -> Look:
    """Compare texts with the tombstones' keys.

    Args:
        lockout: The tombstones.
        texts: Readings of one write.
        vectors: Their unit vectors, shape (texts, dimensions).
        settings: Thresholds.
        scope: What is read.
    """
    if not len(lockout):
        return Look(decision=Decision(allowed=True, reason="no tombstones"), nearest=None)
    if not texts:
        return Look(decision=Decision(allowed=True, reason="far from every tombstone"), nearest=None)
    mute = scope.mute
    most = most_read(scope, settings)
    above = min(settings.read_above, settings.look_above) if scope.acts else settings.look_above
    similarity = lockout.keys.similarity(vectors)
    nearest = float(similarity.max())
    if nearest >= settings.key_alone_above:
        alone = np.where(scope.by_key, similarity, np.float32(-1))
        place = int(alone.argmax())
        stone = place % len(lockout)
        if float(alone.flat[place]) >= settings.key_alone_above:
            return Look(decision=Decision(
                allowed=False, reason="key alone", tombstone=lockout.stones[stone], similarity=float(alone.flat[place])
            ), nearest=nearest)  # fmt: skip
    far = Look(
        decision=Decision(allowed=True, reason="far from every tombstone", similarity=nearest), nearest=nearest
    )  # fmt: skip
    # What is near a mute tombstone alone would take the place of what another may be meant by.
    nearest_of = np.where(mute, np.float32(-2), similarity).max(axis=1)
    always = lockout.keys.keyless & ~mute  # keys that this embedder cannot compare: what is read alone can speak
    candidates = [
        number for number, text in enumerate(texts) if nearest_of[number] >= above or always.any() or is_foreign(text)
    ]
    if not candidates or mute.all():
        return far
    candidates.sort(key=lambda number: -nearest_of[number])
    asked = tuple(candidates[:most])
    rows = similarity[list(asked)]
    strange = np.asarray([is_foreign(texts[number]) for number in asked])[:, None]
    near, close = (((rows >= least) | always | strange) & ~mute for least in (above, settings.look_above))
    return Look(
        decision=None, nearest=nearest, asked=asked, near=near, close=close, similarity=rows,
        left_out=len(candidates) - len(asked),
    )  # fmt: skip


def settle(
    lockout: Lockout,
    seen: Look,
    signatures: Mapping[str, Sequence[HazardSignature | None]],
    settings: GuardSettings,
    doubt: Doubt | None = None,
) -> Decision:
    """Decide on what the model said.

    Args:
        lockout: The tombstones.
        seen: From `look`, with texts to ask about.
        signatures: Taxonomy digest to the signature of each asked text; None where the model gave none.
        settings: The policy for failures.
        doubt: What the acts said, where that is weighed together with the hazards.
    """
    if seen.near is None:
        raise ValueError("nothing was asked")
    labels: set[str] = set()
    unknown = 0
    hazard: float | None = None
    fused: float | None = None
    for found in signatures.values():
        rows = [(signature, seen.near[row]) for row, signature in enumerate(found) if signature is not None]
        unknown += len(found) - len(rows)
        if not rows:
            continue
        labels.update(label for signature, _ in rows for label in signature.labels)
        told = [(one.hazard_nats, near) for one, near in rows if one.hazard_nats is not None]
        hazard = max((nats for nats, _ in told), default=hazard)
        if len(rows) > 1:  # an act may be spread over the pieces of one write
            union = frozenset().union(*(signature.labels for signature, _ in rows))
            whole = HazardSignature(labels=union, taxonomy=rows[0][0].taxonomy, model=rows[0][0].model)
            rows.append((whole, np.any([near for _, near in rows], axis=0)))
        odds = np.full(len(lockout), -np.inf, np.float32)
        if doubt is not None and told:
            odds = np.max([doubt.fused(nats, near) for nats, near in told], axis=0)
            fused = float(odds.max()) if np.isfinite(odds).any() else None
        weighed = np.isfinite(odds)  # a label is not heard a second time beside its hazard
        refusal = Decision(
            allowed=False, reason="hazards match", labels=frozenset(labels), similarity=seen.nearest,
            hazard_nats=hazard, fused_nats=fused,
        )  # fmt: skip
        for signature, near in rows:
            hits = lockout.matching(signature) & near & ~weighed
            if hits.any():
                return replace(refusal, tombstone=lockout.stones[_nearest(seen, hits)])
        if doubt is not None and (hits := odds >= doubt.threshold_nats).any():
            return replace(
                refusal, reason="act and hazard", tombstone=lockout.stones[_nearest(seen, hits)],
                restated_nats=float(doubt.odds[hits].max()),
            )  # fmt: skip
    if unknown:
        return failure("model failed", f"the model gave no usable answer for {unknown} texts", settings, seen.nearest)
    if seen.left_out:
        return _too_long(seen, settings)
    return Decision(
        allowed=True, reason="hazards differ" if labels else "no hazard", labels=frozenset(labels),
        similarity=seen.nearest, hazard_nats=hazard, fused_nats=fused,
    )  # fmt: skip


def settle_acts(  # noqa: PLR0913 - what a decision hangs on
    lockout: Lockout,
    seen: Look,
    found: Sequence[NDArray[np.float32] | str],
    curve: ActCurve,
    settings: GuardSettings,
    *,
    joined: bool = False,
) -> tuple[Decision, NDArray[np.float32]]:
    """Decide on the acts that were read.

    Args:
        lockout: The tombstones.
        seen: From `look`, with texts to read.
        found: Of each of these texts the log-odds by tombstone that it restates its act, NaN where there is none that
            could be compared; or a line that says why the reader could not tell.
        curve: The reader's.
        settings: The mode; the thresholds, where they are not the curve's; and the policy for failures.
        joined: The texts are of several writes, each of which was let in.

    Returns:
        The decision, and the log-odds of the whole write, by tombstone.
    """
    if seen.near is None or seen.close is None:
        raise ValueError("nothing was read")
    odds = np.full((2, len(lockout)), -np.inf, np.float32)  # of all texts, and of those near the key
    for told, near, close in zip(found, seen.near, seen.close, strict=True):
        if not isinstance(told, str):
            odds = np.fmax(odds, np.where([near, close], told, np.float32(-np.inf)))
    unknown = [told for told in found if isinstance(told, str)]
    largest = float(odds.max())
    by_stone = np.where(lockout.acts.keyless, np.float32(np.nan), odds[0])
    restated = None if math.isinf(largest) else largest
    act_nats = alone_nats(curve, settings)
    near_nats = act_nats if joined else _near_nats(curve, settings)
    hits = (odds[0] >= act_nats) | (odds[1] >= near_nats)
    if hits.any():
        decision = Decision(
            allowed=False, reason="act restated", tombstone=lockout.stones[_nearest(seen, hits)],
            similarity=seen.nearest, restated_nats=largest,
        )  # fmt: skip
    elif unknown:
        decision = failure("model failed", unknown[0], settings, seen.nearest)
    elif seen.left_out:
        decision = _too_long(seen, settings)
    else:
        decision = Decision(allowed=True, reason="another act", similarity=seen.nearest, restated_nats=restated)
    return decision, by_stone


def alone_nats(curve: ActCurve, settings: GuardSettings) -> float:
    """Return from where an act refuses with no other evidence.

    Writes that are read together need as much, whatever else speaks against them: what is less is fitted on single
    notes, and five honest notes on one matter have five times the chance to look like more.
    """
    return curve.threshold_nats if settings.act_above_nats is None else settings.act_above_nats


def doubt_nats(curve: ActCurve, settings: GuardSettings) -> float:
    """Return from where an act is in doubt."""
    return curve.doubt_nats if settings.doubt_above_nats is None else settings.doubt_above_nats


def check_thresholds(curve: ActCurve, settings: GuardSettings) -> None:
    """Raise for thresholds where the reader of acts tells nothing.

    Raises:
        UsageError: a user's threshold, or one that moved with it, is below `ActCurve.least_nats`.
    """
    used = {"act_above_nats": alone_nats(curve, settings)}
    if settings.mode == "act":
        used["near_above_nats"] = _near_nats(curve, settings)
    if settings.doubt_above_nats is not None:
        used["doubt_above_nats"] = settings.doubt_above_nats
    for name, nats in used.items():
        if nats < curve.least_nats:
            moved = " (moved with act_above_nats)" if getattr(settings, name) is None else ""
            raise UsageError(
                f"{name} is {nats:g}{moved}, expected {curve.least_nats:g} or more: below that this reader of acts "
                "cannot tell writes apart"
            )


def _near_nats(curve: ActCurve, settings: GuardSettings) -> float:
    """Return from where an act refuses where its key is near; who moves the threshold alone moves this one with it."""
    if settings.mode != "act":
        return alone_nats(curve, settings)
    if settings.near_above_nats is not None:
        return settings.near_above_nats
    return curve.near_nats + settings.moved_nats(curve.threshold_nats)


def failure(reason: Reason, why: str, settings: GuardSettings, similarity: float | None = None) -> Decision:
    """Return what the policy for failures makes of a write that could not be judged."""
    allowed = settings.on_failure == "open"
    return Decision(
        allowed=allowed, reason=reason, similarity=similarity,
        detail=f"{why}; {'let through' if allowed else 'refused'} by policy ({settings.on_failure})",
    )  # fmt: skip


def _too_long(seen: Look, settings: GuardSettings) -> Decision:
    why = f"{seen.left_out} texts were not read: at most {len(seen.asked)} are"
    return failure("too long", why, settings, seen.nearest)


def _nearest(seen: Look, hits: NDArray[np.bool_]) -> int:
    """Return which of the tombstones that match is nearest: the one to name."""
    if seen.similarity is None:
        return int(hits.argmax())
    return int(np.where(hits, seen.similarity.max(axis=0), np.float32(-2)).argmax())
