"""The newest version of a store, looked at again before anything is called an attack.

Others publish while a reader reads, and a vacuum erases what was the newest version a moment ago. A file that is gone
is then no sign of tampering, where the newest version verifies and says that the one that was read is not kept any
more: only the holder of a key can say so. Everything else stays what it looks like.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from memory_audit.errors import StalePlanError, UsageError, VerificationError
from memory_audit.snapshot.layout import read_manifest_file, versions
from memory_audit.snapshot.manifest import MAX_MANIFEST_BYTES, open_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.manifest import Manifest

__all__ = ["TRIES", "at_newest", "oldest_kept", "read_manifest", "read_newest", "unless_erased"]

T = TypeVar("T")

TRIES = 8
"""Looks at a store whose newest version is another each time: nobody publishes and erases so fast."""


def at_newest(path: Path, read: Callable[[int], T]) -> T:
    """Read the newest version of a store; where it does not verify and is no longer the newest, read the one that is.

    Args:
        path: The store.
        read: Reads the version of that number.

    Raises:
        UsageError: no store.
        VerificationError: what `read` raises of the version that stays the newest, or of the last one tried.
    """
    newest = versions(path)[-1]
    for _ in range(TRIES - 1):
        try:
            return read(newest)
        except VerificationError:
            before, newest = newest, versions(path)[-1]
            if newest <= before:
                raise
    return read(newest)


@contextmanager
def unless_erased(path: Path, trust: TrustPolicy, version: int, store_id: str | None = None) -> Iterator[None]:
    """Say of what does not verify that it is no longer kept, where the newest version does and says so.

    Args:
        path: The store.
        trust: The installed policy.
        version: The version that is read.
        store_id: Of the store it is of; None where that is not known yet.

    Raises:
        StalePlanError: a vacuum erased that version.
        VerificationError: the version is kept, and does not verify; or the newest does not.
    """
    try:
        yield
    except VerificationError:
        if oldest_kept(path, trust, store_id) > version:
            raise StalePlanError(
                f"{path}: a vacuum erased version {version} while it was read; start again with the newest"
            ) from None
        raise


def oldest_kept(path: Path, trust: TrustPolicy, store_id: str | None = None) -> int:
    """Return which version the newest one says is the oldest kept; 0 where there is none, or one of another store.

    Raises:
        VerificationError: the newest version does not verify.
    """
    with suppress(UsageError):
        newest = read_newest(path, trust, now_ms=0, check_expiry=False)
        if store_id in {None, newest.store_id}:
            return newest.oldest
    return 0


def read_newest(path: Path, trust: TrustPolicy, *, now_ms: int, check_expiry: bool) -> Manifest:
    """Read and verify the newest manifest. Raises like `read_manifest`, and UsageError where there is no store."""
    return at_newest(
        path, lambda version: read_manifest(path, trust, version, now_ms=now_ms, check_expiry=check_expiry)
    )


def read_manifest(path: Path, trust: TrustPolicy, version: int, *, now_ms: int, check_expiry: bool) -> Manifest:
    """Read and verify one manifest.

    Raises:
        VerificationError: see `memory_audit.snapshot.manifest`.
    """
    where = f"manifests/{version}.json"
    data = read_manifest_file(path, version, MAX_MANIFEST_BYTES)
    return open_manifest(data, trust, version=version, now_ms=now_ms, check_expiry=check_expiry, where=where)
