"""The exception tree of MemAudit. Every error says what, where and what to do, and carries an exit code.

    AuditError
    ├── UsageError          2   arguments, configuration or input files the user can correct
    │   ├── EntryError          an entry that breaks a rule of the format (size, text, fields)
    │   ├── EventError          an event that breaks a rule or names what is not in the store
    │   └── ScoringError        a harm scorer that cannot judge one output
    ├── IncompleteError     3   the run stopped part-way; a second start with the same configuration continues
    │   ├── BudgetError         the budget of replays is spent; a larger one continues
    │   └── ModelError          a model could not be loaded, or died
    │       └── AnswerError         it refused one request, or answered it outside its contract
    ├── VerificationError   4   bytes that do not verify: signature, hash, root, encoding, rollback
    ├── StalePlanError      5   the store changed since the run that proposes to change it, or while it was read;
    │                           a plan that was made for another audit
    ├── HeldError           6   another command has the lease of the store
    └── WriteRefusedError   1   a guard refused what an agent wrote to its memory

`memory_audit.jobs.cli.main` is the only place that turns these into a line on the terminal and an exit code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AnswerError",
    "AuditError",
    "BudgetError",
    "EntryError",
    "EventError",
    "HeldError",
    "IncompleteError",
    "ModelError",
    "ModelLostError",
    "PrefixUnsupportedError",
    "PromptTooLongError",
    "ScoringError",
    "StalePlanError",
    "UsageError",
    "VerificationError",
    "WriteRefusedError",
]

DEFECT = 70
"""Exit code of an exception that is none of these."""


class AuditError(Exception):
    """Base of every error MemAudit raises on purpose."""

    exit_code: ClassVar[int] = 3


class UsageError(AuditError):
    """Arguments, configuration or an input file that the user can correct."""

    exit_code: ClassVar[int] = 2


class EntryError(UsageError):
    """A memory entry that breaks a rule of the format."""


class EventError(UsageError):
    """An event that breaks a rule of the format or names something that is not in the store."""


class ScoringError(UsageError):
    """A harm scorer failed on one output, or gave what is no harm."""


class IncompleteError(AuditError):
    """The run stopped before its end; what was computed is kept and a second start continues."""

    exit_code: ClassVar[int] = 3


class BudgetError(IncompleteError):
    """The run's budget of replays was spent before all was examined; the same run with a larger one continues."""


class ModelError(IncompleteError):
    """A model could not be loaded, died, or answered outside its contract."""


class AnswerError(ModelError):
    """A model refused one request, or its answer cannot be used: no word on other requests."""


class ModelLostError(ModelError):
    """What serves a model is gone or cannot be reached: no word on the request, which another replica may answer."""


class PrefixUnsupportedError(ModelError):
    """The server cannot continue a forced prefix, or gives no log-probabilities of what follows."""


class PromptTooLongError(ModelError):
    """The prompt leaves no room for an answer in the model's context."""


class VerificationError(AuditError):
    """Bytes that do not verify. Nothing read from them may be used."""

    exit_code: ClassVar[int] = 4


class StalePlanError(AuditError):
    """The store is no longer the one that the run audited, or that a reader opened; or a plan is of another audit."""

    exit_code: ClassVar[int] = 5


class HeldError(AuditError):
    """Another command has the lease of the store, on this machine or another."""

    exit_code: ClassVar[int] = 6


class WriteRefusedError(AuditError):
    """A guard refused memories that an agent wrote: they are not stored, and the agent may go on.

    Args:
        message: Says how many, and why.
        refused: Id of each, as the system has it, and why.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, refused: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.refused = dict(refused or {})
