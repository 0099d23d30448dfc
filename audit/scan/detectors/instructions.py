"""Text that teaches an agent a harmful behaviour, as the guard's reader of behaviours finds it, whatever was removed.

The reader's log-odds come from a model's activations and were fitted on texts of no benchmark. There is no list of
phrases behind it: without a guard this detector finds nothing. Cost: one reading of the packaged 0.5B for each piece of
a memory, a tenth of a second to half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import finding_about

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_audit.entry import Entry
    from memory_audit.scan.detector import Need, ScannedMemory
    from memory_audit.scan.finding import Finding

__all__ = ["Instructions"]

MIN_HARM_NATS = 9.0
"""Set on clean text alone: a nat above what the reader says of memories that nobody poisoned, drawn from conversations,
examination questions and shopping (`benchmarks.scan.clean_harm`). At even odds it takes all of a shop's episodes for
harmful."""

READ_AT_ONCE = 64
"""Memories between two findings."""

KINDS = {
    "instructions": Kind(
        title="A memory that teaches a harmful behaviour",
        advice="Read it: does it tell the agent to leave out a check, to send something away, or to call a thing done "
        "that is not? Then remove it, and audit what the agent did with it.",
        severity="medium",
        taxonomy=("ASI01", "ASI06", "AML.T0051.001", "AML.T0080.000"),
    )
}


class Instructions:
    """See the module."""

    name = "instructions"
    kinds: Mapping[str, Kind] = KINDS
    needs: frozenset[Need] = frozenset({"guard"})
    alone = True

    def scan(self, memory: ScannedMemory, entries: Sequence[Entry]) -> Iterator[Finding]:
        """Yield one finding for each memory whose worst passage is more harmful than clean ones are.

        Raises:
            ModelError: the reader failed.
        """
        if memory.guard is None:
            return
        for start in range(0, len(entries), READ_AT_ONCE):
            part = entries[start : start + READ_AT_ONCE]
            for entry, nats in zip(part, memory.guard.harms(part), strict=True):
                if nats > MIN_HARM_NATS:
                    yield finding_about(
                        entry, detector=self.name, kind="instructions", severity="medium",
                        message="what it teaches is probably harmful", evidence=[("harm", f"{nats:.1f} nats")],
                    )  # fmt: skip
