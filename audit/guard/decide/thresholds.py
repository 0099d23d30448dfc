"""From how many nats a behaviour refuses, and from where it leaves a write in doubt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    from memory_audit.guard.blocks.behaviour import BehaviourCurve
    from memory_audit.guard.decide.settings import GuardSettings

__all__ = ["Thresholds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Log-odds in nats: those of the reader's calibration, but where a user set others.

    Who moves the threshold of the behaviour alone moves `near_nats` and `fused_nats` with it.
    """

    alone_nats: float
    """From where a behaviour refuses with no other evidence.

    Writes that are read together need as much, whatever else speaks against them: what is less is fitted on single
    notes, and five honest notes on one matter have five times the chance to look like more.
    """

    near_nats: float
    """From where it refuses where its key is near."""

    doubt_nats: float
    """From where it is in doubt."""

    fused_nats: float
    """From where behaviour and hazard together refuse; infinite where they are not weighed together."""

    hazard_slope: float
    """Nats of behaviour for a nat of hazard."""

    @classmethod
    def of(cls, curve: BehaviourCurve, settings: GuardSettings) -> Thresholds:
        """Return the thresholds of a guard.

        Raises:
            UsageError: a user's threshold, or one that moved with it, is below `BehaviourCurve.least_nats`.
        """
        alone = _given(settings.behaviour_above_nats, curve.threshold_nats)
        moved = alone - curve.threshold_nats if settings.behaviour_above_nats is not None else 0.0
        near, fused = alone, math.inf
        if settings.mode == "behaviour":
            near = _given(settings.near_above_nats, curve.near_nats + moved)
        elif curve.hazard_slope:
            fused = _given(settings.fused_above_nats, curve.fused_nats + moved)
        found = cls(
            alone_nats=alone, near_nats=near, doubt_nats=_given(settings.doubt_above_nats, curve.doubt_nats),
            fused_nats=fused, hazard_slope=curve.hazard_slope,
        )  # fmt: skip
        used = {"behaviour_above_nats": found.alone_nats, "near_above_nats": found.near_nats}
        if settings.doubt_above_nats is not None:
            used["doubt_above_nats"] = found.doubt_nats
        for name, nats in used.items():
            if nats < curve.least_nats:
                told = " (moved with behaviour_above_nats)" if getattr(settings, name) is None else ""
                raise UsageError(
                    f"{name} is {nats:g}{told}, expected {curve.least_nats:g} or more: below that this reader of "
                    "behaviours cannot tell writes apart"
                )
        return found


def _given(users: float | None, calibrated: float) -> float:
    return calibrated if users is None else users
