"""What work did, and what it still waits for: counts by stage, kinds of errors and names of tenants.

    {"run": "4f2a90c1", "folder": "/runs/1", "heard_at_ms": 1760000000000, "error_at_ms": 1760000000000,
     "stages": {"replay": {"done": 120, "waiting": 280, "known": 40, "seconds": 38.5, "cpu_seconds": 2.1}},
     "retries": {"backbone": 3}, "errors": {"EventError": 1}, "failed": {"acme": "EventError"}}

No text of a memory, a query or an answer is in it, so it may go wherever a platform sends its figures. Errors go by
their kind: the line of one may quote what it complains of.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from memory_audit.errors import AuditError
from memory_audit.jobs.clock import now_ms
from memory_audit.models.services.retries import Asked, take_retries

__all__ = ["Counts", "Label", "Tally", "kind_of"]

Label = Literal["tenant", "group", "load", "embed", "compare", "replay", "hazard"]
"""What is counted: tenants and groups audited, models loaded, texts embedded, pairs compared, questions replayed,
memories whose hazards are read."""

MOST_NAMED = 20
"""Failed tenants that are named; all are counted."""

DEFECT = "defect"


class Counts(msgspec.Struct):
    """One stage."""

    done: int = 0
    """Asked for and answered."""

    waiting: int = 0
    known: int = 0
    """Needed, and not asked for: from this run's folder, an earlier run, or an equal question."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of the process that asks, and of the models where they are in it."""


class Tally(msgspec.Struct):
    """All stages of one piece of work."""

    run: str | None = None
    """Id of the run, once that is known."""

    folder: str | None = None
    """Of the run, absolute."""

    heard_at_ms: int | None = None
    """When something was done last, Unix milliseconds."""

    stages: dict[Label, Counts] = {}
    retries: dict[Asked, int] = {}
    """By model."""

    errors: dict[str, int] = {}
    """By kind: names of `memory_audit.errors`, DEFECT, or `interrupted`."""

    failed: dict[str, str] = {}
    """The first tenants that could not be audited, and the kind of error."""

    error_at_ms: int | None = None
    """When the last error came, Unix milliseconds."""

    def of(self, label: Label) -> Counts:
        """Return the counts of a stage, to be changed."""
        return self.stages.setdefault(label, Counts())

    def expect(self, label: Label, count: int) -> None:
        """Say that so many are to be done."""
        self.of(label).waiting += count

    def end(self, label: Label, count: int) -> None:
        """Say that so many are done."""
        self.of(label).waiting -= count
        self.of(label).done += count

    def hear(self) -> None:
        """Note that something was done, and what models were asked again in this process since any tally heard."""
        self.heard_at_ms = now_ms()
        for role, count in take_retries().items():
            self.retries[role] = self.retries.get(role, 0) + count

    def note(self, error: BaseException, tenant: str | None = None) -> str:
        """Count an error, of one tenant or of the whole run, and return its kind."""
        kind = kind_of(error)
        self.errors[kind] = self.errors.get(kind, 0) + 1
        self.error_at_ms = now_ms()
        if tenant is not None and len(self.failed) < MOST_NAMED:
            self.failed[tenant] = kind
        return kind

    def add(self, other: Tally) -> None:
        """Add what another piece of the same work counted."""
        for label, counts in other.stages.items():
            mine = self.of(label)
            for name in Counts.__struct_fields__:
                setattr(mine, name, getattr(mine, name) + getattr(counts, name))
        for role, count in other.retries.items():
            self.retries[role] = self.retries.get(role, 0) + count
        if other.heard_at_ms is not None:
            self.heard_at_ms = max(other.heard_at_ms, self.heard_at_ms or 0)


def kind_of(error: BaseException) -> str:
    """Return the kind of an error: one of few words, none of which is from outside."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return type(error).__name__ if isinstance(error, AuditError) and type(error) is not AuditError else DEFECT
