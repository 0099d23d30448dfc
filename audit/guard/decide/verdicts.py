"""What is decided on what was read of a write: on its behaviours, and in doubt on its hazards. Pure functions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memory_audit.guard.blocks.hazard import HazardSignature
from memory_audit.guard.decide.guard_decision import GuardDecision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_audit.guard.decide.prefilter import ToRead
    from memory_audit.guard.decide.rules import Doubt, Rules

__all__ = ["decide_behaviours", "decide_hazards"]


def decide_behaviours(
    rules: Rules, read: ToRead, found: Sequence[NDArray[np.float32] | str], *, joined: bool = False
) -> tuple[GuardDecision, NDArray[np.float32]]:
    """Decide on the behaviours that were read.

    Args:
        rules: Tombstones, thresholds and the policy for failures.
        read: What was read.
        found: Of each text the answer to `memory_audit.guard.decide.asks.ReadBehaviour`.
        joined: The texts are of several writes, each of which was let in.

    Returns:
        The decision, and the log-odds of the whole write, by tombstone.
    """
    block_list, thresholds = rules.block_list, rules.thresholds
    odds = np.full((2, len(block_list)), -np.inf, np.float32)  # of all texts, and of those near the key
    for told, within_read, within_refuse in zip(found, read.within_read, read.within_refuse, strict=True):
        if not isinstance(told, str):
            odds = np.fmax(odds, np.where([within_read, within_refuse], told, np.float32(-np.inf)))
    unknown = [told for told in found if isinstance(told, str)]
    largest = float(odds.max())
    near_nats = thresholds.alone_nats if joined else thresholds.near_nats
    hits = (odds[0] >= thresholds.alone_nats) | (odds[1] >= near_nats)
    if hits.any():
        decision = GuardDecision(
            allowed=False, reason="behaviour restated", tombstone=block_list.stones[read.nearest_of(hits)],
            similarity=read.nearest, restated_nats=largest,
        )  # fmt: skip
    elif unknown:
        decision = rules.failure("model failed", unknown[0], read.nearest)
    elif read.left_out:
        decision = _too_long(rules, read)
    else:
        decision = GuardDecision(
            allowed=True, reason="another behaviour", similarity=read.nearest,
            restated_nats=None if math.isinf(largest) else largest,
        )  # fmt: skip
    return decision, np.where(block_list.behaviours.keyless, np.float32(np.nan), odds[0])


def decide_hazards(
    rules: Rules, read: ToRead, signatures: Mapping[str, Sequence[HazardSignature | None]], doubt: Doubt | None = None
) -> GuardDecision:
    """Decide on the hazards that were read.

    Args:
        rules: Tombstones and the policy for failures.
        read: What was read.
        signatures: Taxonomy digest to the signature of each text; None where the model gave none.
        doubt: What the behaviours said, where that is weighed together with the hazards.
    """
    block_list = rules.block_list
    labels: set[str] = set()
    unknown = 0
    hazard: float | None = None
    fused: float | None = None
    for found in signatures.values():
        rows = [(one, within) for one, within in zip(found, read.within_read, strict=True) if one is not None]
        unknown += len(found) - len(rows)
        if not rows:
            continue
        labels.update(label for signature, _ in rows for label in signature.labels)
        told = [(one.hazard_nats, within) for one, within in rows if one.hazard_nats is not None]
        hazard = max((nats for nats, _ in told), default=hazard)
        if len(rows) > 1:  # a behaviour may be spread over the pieces of one write
            union = frozenset().union(*(signature.labels for signature, _ in rows))
            whole = HazardSignature(labels=union, taxonomy=rows[0][0].taxonomy, model=rows[0][0].model)
            rows.append((whole, np.any([within for _, within in rows], axis=0)))
        odds = np.full(len(block_list), -np.inf, np.float32)
        if doubt is not None and told:
            odds = np.max([doubt.fused(nats, within) for nats, within in told], axis=0)
            fused = float(odds.max()) if np.isfinite(odds).any() else None
        weighed = np.isfinite(odds)  # a label is not heard a second time beside its hazard
        refusal = GuardDecision(
            allowed=False, reason="hazards match", labels=frozenset(labels), similarity=read.nearest,
            hazard_nats=hazard, fused_nats=fused,
        )  # fmt: skip
        for signature, within in rows:
            hits = block_list.matching(signature) & within & ~weighed
            if hits.any():
                return replace(refusal, tombstone=block_list.stones[read.nearest_of(hits)])
        if doubt is not None and (hits := odds >= doubt.threshold_nats).any():
            return replace(
                refusal, reason="behaviour and hazard", tombstone=block_list.stones[read.nearest_of(hits)],
                restated_nats=float(doubt.odds[hits].max()),
            )  # fmt: skip
    if unknown:
        return rules.failure("model failed", f"the model gave no usable answer for {unknown} texts", read.nearest)
    if read.left_out:
        return _too_long(rules, read)
    return GuardDecision(
        allowed=True, reason="hazards differ" if labels else "no hazard", labels=frozenset(labels),
        similarity=read.nearest, hazard_nats=hazard, fused_nats=fused,
    )  # fmt: skip


def _too_long(rules: Rules, read: ToRead) -> GuardDecision:
    why = f"{read.left_out} texts were not read: at most {len(read.texts)} are"
    return rules.failure("too long", why, read.nearest)
