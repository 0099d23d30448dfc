"""One store as one command sees it: opened once, held against what its user saw last, and remembered.

What a user saw last is a pin (`memory_audit.snapshot.pin`): the file of --pin, or one for each store in the user's
state folder.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import platformdirs

from memory_audit.errors import IncompleteError, UsageError, VerificationError
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.places import check_outside_stores
from memory_audit.provenance import durable
from memory_audit.snapshot.newest import read_newest
from memory_audit.snapshot.pin import Pin, read_pin, write_pin
from memory_audit.snapshot.reader import VerifiedSnapshot, check_pin, open_snapshot

if TYPE_CHECKING:
    from memory_audit.provenance.trust_policy import TrustPolicy

__all__ = ["StoreSession", "check_pin_place", "known_pin", "remember", "remember_published", "seen_stores"]

_STORE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSession:
    """A store at its newest version, which shows no less than this user saw before."""

    snapshot: VerifiedSnapshot
    known: Pin | None
    """What this user saw last of it; None on first use."""

    pin_file: Path | None
    """The file of --pin."""

    @classmethod
    def open(
        cls, store: Path, trust: TrustPolicy, pin_file: Path | None, *, now_ms: int, check_expiry: bool = True
    ) -> Self:
        """Open a store.

        Args:
            store: Its folder.
            trust: The installed policy.
            pin_file: The file of --pin.
            now_ms: This command's clock, Unix milliseconds.
            check_expiry: False for a command that is about to publish.

        Raises:
            UsageError: no store, or a pin that cannot be read.
            VerificationError: it does not verify, or shows less than this user saw before.
        """
        snapshot = open_snapshot(store, trust, now_ms=now_ms, check_expiry=check_expiry)
        known = read_pin(_pin_path(pin_file, snapshot.store_id))
        if known is not None:
            try:
                check_pin(store, trust, snapshot.manifest, snapshot.log_refs, known)
            except VerificationError:  # others may have published, and seen it, between the two looks
                snapshot = open_snapshot(store, trust, now_ms=now_ms, pin=known, check_expiry=check_expiry)
        return cls(snapshot=snapshot, known=known, pin_file=pin_file)

    def remember(self) -> None:
        """Keep what was seen. Raises like `remember`."""
        remember(self.snapshot, self.pin_file)

    def remember_published(self, version: int | None) -> None:
        """Keep what the store shows after this command published a version of it. Raises like `remember`."""
        remember_published(self.snapshot.path, self.snapshot.trust, self.pin_file, version)


def known_pin(store: Path, given: Path | None, policy: TrustPolicy, now: int) -> Pin | None:
    """Read what this user saw last of a store that something else opens; None on first use."""
    newest = read_newest(store, policy, now_ms=now, check_expiry=False)
    return read_pin(_pin_path(given, newest.store_id))


def check_pin_place(given: Path | None) -> None:
    """Make sure, before anything is published, that a pin of it can be kept.

    Raises:
        UsageError: the pin would lie among the files of a store, or where no folder can be.
        IncompleteError: the folder cannot be made, or not be written to.
    """
    path = _pin_path(given, "any")
    try:
        durable.ensure_folder(path.parent)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (IncompleteError, UsageError) as error:
        raise type(error)(f"no pin could be kept: {error}; --pin names another file") from None
    except OSError as error:
        raise IncompleteError(
            f"no pin could be kept: cannot write {path} ({error.strerror}); --pin names another file"
        ) from None


def remember(snapshot: VerifiedSnapshot, given: Path | None, *, published: int | None = None) -> None:
    """Keep what this user saw of a store.

    Where the pin is ahead, others published and saw it while the command ran, or the store was rolled back: its newest
    version, looked at again, must go on from both.

    Args:
        snapshot: What was seen.
        given: The file of --pin.
        published: The version that this command published; whoever started it is told so where no pin can be kept.

    Raises:
        VerificationError: it shows less than this user saw before.
        IncompleteError, UsageError: the pin cannot be kept; without one a rollback would go unseen. With `published`
            always IncompleteError.
    """
    path = _pin_path(given, snapshot.store_id)
    pin = snapshot.pin()
    try:
        if (known := read_pin(path)) is not None:
            check_pin(snapshot.path, snapshot.trust, snapshot.manifest, snapshot.log_refs, known)
        write_pin(path, pin)
    except VerificationError:
        known = read_pin(path)
        if known is None or known.store_id != pin.store_id or known.version <= pin.version:
            raise
        for seen in (known, pin):
            open_snapshot(snapshot.path, snapshot.trust, now_ms=now_ms(), pin=seen, check_expiry=False)
    except (IncompleteError, UsageError) as error:
        kept = f"what was seen of the store is not kept: {error}; --pin names another file"
        if published is None:
            raise type(error)(kept) from None
        raise IncompleteError(
            f"version {published} of {snapshot.path} is published, but {kept}; then start the same command again"
        ) from None


def remember_published(store: Path, trust: TrustPolicy, given: Path | None, version: int | None) -> None:
    """Keep what a store shows after this command published a version of it. Raises like `remember`."""
    remember(open_snapshot(store, trust, now_ms=now_ms(), check_expiry=False), given, published=version)


def seen_stores() -> frozenset[str]:
    """Return the ids of the stores that this user has seen, and pinned in the usual place."""
    return frozenset(path.stem for path in _pins().glob("*.json") if _STORE_ID.fullmatch(path.stem))


def _pin_path(given: Path | None, store_id: str) -> Path:
    if given is None:
        return _pins() / f"{store_id}.json"
    check_outside_stores(given)
    return given


def _pins() -> Path:
    return Path(platformdirs.user_state_dir("memaudit")) / "pins"
