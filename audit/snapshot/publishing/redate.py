"""Setting right a store whose newest version was dated by a wrong clock.

Readers and publishers refuse a newest version from the future, and no publisher dates one years after the one before.
Whoever holds the log's key and knows that his clock is right publishes a successor with the same memories, dated by it.
Of the older version the date does not count any more. Without the key nothing is set right: a manifest from the future
that is put in the place of the newest is refused as before, and the pins of those who saw the successor refuse it too.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.snapshot.layout import hold
from memory_audit.snapshot.manifest import MAX_CLOCK_SKEW_MS, MAX_GAP_MS
from memory_audit.snapshot.newest import read_newest
from memory_audit.snapshot.publishing.publish import publish_again
from memory_audit.snapshot.reader import check_pin, load_logs

if TYPE_CHECKING:
    from pathlib import Path

    from memory_audit.provenance.keys import Keyring
    from memory_audit.snapshot.pin import Pin

__all__ = ["Redated", "redate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redated:
    """What was set right, or would be."""

    version: int
    """The version whose date is wrong, or that is so old that no publisher follows it."""

    created_ms: int
    """When it says that it was made, Unix milliseconds."""

    needed: bool
    """Whether readers or publishers refuse it for its date."""

    published: int | None
    """Its successor; None for a dry run, and where none is needed."""


def redate(path: Path, keyring: Keyring, *, now_ms: int, pin: Pin | None = None, dry_run: bool = True) -> Redated:
    """Publish a successor of the newest version, dated now, where the date of that one stops readers or publishers.

    Args:
        path: The store.
        keyring: Holds the log key.
        now_ms: A clock that is right, Unix milliseconds.
        pin: What this user saw last of the store.
        dry_run: Tell what would be done and publish nothing.

    Raises:
        UsageError: no store, or a missing key.
        VerificationError: the newest version does not verify, or is behind the pin.
        StalePlanError: someone else published meanwhile.
        IncompleteError: the disk is full; the newest version is unchanged.
    """
    keyring.signers("log")
    with nullcontext() if dry_run else hold(path):  # a vacuum beside it would take its scratch file for a left-over
        newest = read_newest(path, keyring.policy, now_ms=now_ms, check_expiry=False)
        if pin is not None:
            check_pin(path, keyring.policy, newest, load_logs(path, newest), pin)
        needed = not -MAX_CLOCK_SKEW_MS <= now_ms - newest.created_ms <= MAX_GAP_MS
        version = None
        if needed and not dry_run:
            version = publish_again(
                path, newest, keyring, operation="append", now_ms=now_ms, oldest=newest.oldest
            ).version
    return Redated(version=newest.version, created_ms=newest.created_ms, needed=needed, published=version)
