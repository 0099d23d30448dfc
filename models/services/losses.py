"""What Ray says where a replica is lost, and what is said of it to who asked.

A replica goes with its machine or its process, while it answers or while it loads. One that says that it cannot load
its model, or reaches no server, is no help either; one that refuses a request is not lost.
"""

from __future__ import annotations

from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
)

from memory_audit.errors import AuditError, ModelError

__all__ = ["FOR_GOOD", "LOST", "as_model_error", "check_served", "raised", "what_is_full"]

FOR_GOOD = (ActorDiedError, ActorUnschedulableError)
"""What Ray says of a replica that it does not start anew, and of one whose node went before it was there."""

LOST = (*FOR_GOOD, ActorUnavailableError, ObjectLostError, OutOfMemoryError)
"""The same, and what it says of one that is away for now."""


def check_served(found: str, expected: str) -> None:
    """Raise ModelError unless a replica serves the run's weights: only one started anew may not."""
    if found != expected:
        raise ModelError(
            f"a machine that took over serves {found:.80}, the run was started with {expected:.80}: "
            "give all machines the same weights"
        )


def as_model_error(error: RayError, model: str) -> AuditError:
    """Return the error that the actor raised, or one that says that the actor is gone, or could not start."""
    cause = raised(error)
    if isinstance(cause, AuditError):
        return type(cause)(str(cause))
    full = what_is_full(error)
    if full:
        return ModelError(f"{model} cannot be asked: {full}")
    lines = [line for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    why = lines[-1].strip()[:200]
    if isinstance(error, OutOfMemoryError):  # Ray's own text is fifty lines about the node
        why = "the machine ran out of memory"
    elif isinstance(error, ActorUnavailableError):  # Ray's own text is about sockets
        why = "nothing took its place in time"
    return ModelError(f"the process that serves {model} died ({why})")


def what_is_full(error: BaseException) -> str:
    """Return in a line what has no room, where that is what Ray says; else an empty text."""
    full = ObjectStoreFullError | OutOfDiskError
    if isinstance(error, full) or isinstance(raised(error), full):
        return "a machine's object store is full, and so is the disk that it spills to"
    return ""


def raised(error: BaseException) -> object:
    """Return what the actor itself raised; something else where it raised nothing."""
    cause = getattr(error, "cause", None)
    return cause.cause if isinstance(cause, RayTaskError) else cause
