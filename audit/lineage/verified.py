"""Lineage of one tenant out of a verified snapshot, and how long it may be relied on.

The gate takes nothing else: texts, labels and edges are those whose signatures, hashes and accounting were checked by
`memory_audit.snapshot.reader`. `advance` takes in a later version of the same store: the log must continue the one that
was read, so only new leaves cost anything; entries that a tombstone removed or put in quarantine since become external
where they stand. Where one was released since, the log is read anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import StalePlanError, VerificationError
from memory_audit.lineage.dag import DEFAULT_TAU_PPM, Lineage

if TYPE_CHECKING:
    from memory_audit.entry import Entry
    from memory_audit.lineage.trust import TrustRules
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Standing", "VerifiedLineage"]

MAX_CLOCK_SKEW_MS = 10 * 60 * 1000
"""A version may be this much ahead of the gate's clock, as for `memory_audit.snapshot.manifest`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Which version a lineage was read from."""

    store_id: str
    version: int
    created_ms: int
    expires_ms: int | None

    def stale(self, *, now_ms: int, max_age_s: int | None, newest_version: int | None) -> str | None:
        """Return why this version must not be relied on at `now_ms`, or None where it may."""
        if self.expires_ms is not None and now_ms > self.expires_ms:
            return f"version {self.version} expired at {self.expires_ms} ms, it is {now_ms} ms"
        if now_ms < self.created_ms - MAX_CLOCK_SKEW_MS:
            return f"version {self.version} was created at {self.created_ms} ms, the clock says {now_ms} ms"
        if max_age_s is not None and now_ms - self.created_ms > max_age_s * 1000:
            return f"version {self.version} is {(now_ms - self.created_ms) // 1000} s old, at most {max_age_s} s"
        if newest_version is not None and newest_version > self.version:
            return f"version {self.version} was read, version {newest_version} is published"
        return None


class VerifiedLineage:
    """Labels, paths and texts of one tenant's memories, as of one verified version.

    Args:
        snapshot: From `open_snapshot`.
        tenant: Whose log to read.
        rules: Base labels.
        tau_ppm: Weight from which an edge is strong.

    Raises:
        TypeError: not a VerifiedSnapshot.
        UsageError: no such tenant.
        VerificationError: the tenant's log does not verify.
    """

    def __init__(
        self, snapshot: VerifiedSnapshot, tenant: str, rules: TrustRules, tau_ppm: int = DEFAULT_TAU_PPM
    ) -> None:
        self.dag = Lineage(tenant, rules, tau_ppm)
        self._entries: dict[str, Entry] = {}
        self._hashes: tuple[bytes, ...] = ()
        self.standing = _standing(snapshot)
        self.advance(snapshot)

    def advance(self, snapshot: VerifiedSnapshot) -> None:
        """Take in a later version of the same store.

        Raises:
            TypeError: not a VerifiedSnapshot.
            StalePlanError: an older version than the one read.
            VerificationError: another store's, a log that does not continue the one read, or one that does not verify.
        """
        later, known = _standing(snapshot), self.standing
        tenant = self.dag.tenant
        where = f"tenant {tenant!r:.80}, version {later.version}"
        if later.store_id != known.store_id:
            raise VerificationError(f"{where}: store {later.store_id}, the lineage is of store {known.store_id}")
        if later.version < known.version:
            raise StalePlanError(f"{where}: older than version {known.version}, which the lineage was read from")
        log = snapshot.log(tenant)
        size = len(self._hashes)
        if log.leaf_hashes[:size] != self._hashes:
            raise VerificationError(f"{where}: the log does not continue the one that the lineage was read from")
        if any(item.index < size and item.entry.entry_id not in self._entries for item in log.entries):  # released
            self.dag, self._entries, size = Lineage(tenant, self.dag.rules, self.dag.tau_ppm), {}, 0
        new: list[tuple[int, Entry | str]] = [(item.index, item.entry) for item in log.entries if item.index >= size]
        fallen = [item.tombstone for item in log.tombstones if item.index >= size]
        new += [(body.removed_index, body.entry_id) for body in fallen if body.removed_index >= size]
        for _, item in sorted(new, key=lambda pair: pair[0]):
            if isinstance(item, str):
                self.dag.append_removed(item)
            else:
                self.dag.append(item)
                self._entries[item.entry_id] = item
        gone = [body.entry_id for body in fallen if body.removed_index < size]
        self.dag.remove(*gone)
        for entry_id in gone:
            self._entries.pop(entry_id, None)  # one that is removed out of quarantine is there no more
        self._hashes = log.leaf_hashes
        self.standing = later

    def entry(self, entry_id: str) -> Entry | None:
        """Return a live entry; None where there is none of that id, or it was removed."""
        return self._entries.get(entry_id)


def _standing(snapshot: VerifiedSnapshot) -> Standing:
    from memory_audit.snapshot.reader import VerifiedSnapshot as Verified  # noqa: PLC0415 - brings Parquet

    if not isinstance(snapshot, Verified):
        raise TypeError(f"lineage is read from a VerifiedSnapshot, not from {type(snapshot).__name__}")
    manifest = snapshot.manifest
    return Standing(
        store_id=manifest.store_id, version=manifest.version, created_ms=manifest.created_ms,
        expires_ms=manifest.expires_ms,
    )  # fmt: skip
