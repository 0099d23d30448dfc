"""The table of targets that every engine runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.systems.fuzz.inputs import input_targets
from benchmarks.systems.fuzz.kept import kept_targets
from benchmarks.systems.fuzz.signed import signed_targets

if TYPE_CHECKING:
    from benchmarks.systems.fuzz.target import Target

__all__ = ["targets"]


def targets() -> tuple[Target, ...]:
    """Return every target, in the order of the results."""
    return (*signed_targets(), *input_targets(), *kept_targets())
