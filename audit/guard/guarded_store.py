"""The guards of a store's tenants, kept at its newest version.

Only verified versions are taken, never an older one than seen before; where the newest does not verify, the set in
force stays in force, and `refresh` raises. So a publisher that crashes half-way, or somebody who tampers with the
store, leaves the guard with the old tombstones and never with none.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from memory_audit.errors import StalePlanError, UsageError
from memory_audit.guard.blocks.block_list import read_block_list
from memory_audit.guard.decide.model_thread import ModelThread
from memory_audit.guard.guard import WriteGuard
from memory_audit.snapshot.layout import versions
from memory_audit.snapshot.newest import TRIES
from memory_audit.snapshot.reader import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from memory_audit.entry import Entry
    from memory_audit.guard.blocks.behaviour import BehaviourReader
    from memory_audit.guard.blocks.block_list import BlockList
    from memory_audit.guard.blocks.hazard import Taxonomy
    from memory_audit.guard.blocks.tombstone import Embed
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.decide.settings import GuardSettings
    from memory_audit.guard.guard import HazardExtractor
    from memory_audit.provenance.trust_policy import TrustPolicy
    from memory_audit.snapshot.pin import Pin
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["GuardedStore"]

T = TypeVar("T")


class GuardedStore:
    """Makes a guard for each tenant that is asked for. Thread-safe.

    Args:
        path: The store.
        trust: The installed policy.
        embed: See `WriteGuard`.
        embedder: Id of the embedding model.
        behaviours: See `WriteGuard`.
        extractor: See `WriteGuard`.
        taxonomies: See `WriteGuard`.
        settings: See `WriteGuard`.
        clock_ms: Now, in Unix milliseconds.
        on_decision: See `WriteGuard`.
        pin: What this reader saw of the store before, kept outside of it.
        tenants: Whom to serve; empty is every tenant of the store.

    Raises:
        UsageError: no store, or a tenant that is not in it.
        VerificationError: it does not verify.
    """

    def __init__(  # noqa: PLR0913 - a store, a reader and a guard's parts
        self,
        path: Path,
        trust: TrustPolicy,
        *,
        embed: Embed,
        embedder: str,
        behaviours: BehaviourReader,
        extractor: HazardExtractor | None = None,
        taxonomies: Sequence[Taxonomy] = (),
        settings: GuardSettings,
        clock_ms: Callable[[], int],
        on_decision: Callable[[Entry, GuardDecision], None] | None = None,
        pin: Pin | None = None,
        tenants: Sequence[str] = (),
    ) -> None:
        self._path, self._trust, self._clock_ms = path, trust, clock_ms
        self._thread = ModelThread()
        self._models = {"embedder": embedder, "behaviour_model": behaviours.model_id}
        self._made = partial(
            WriteGuard, embed=embed, behaviours=behaviours, extractor=extractor, taxonomies=tuple(taxonomies),
            settings=settings, clock_ms=clock_ms, on_decision=on_decision, thread=self._thread,
        )  # fmt: skip
        self._lock = threading.Lock()  # of the guards; held to make one, and to put a version in force
        self._refreshing = threading.Lock()  # taken before the other, and held for as long as a version takes to verify
        self._guards: dict[str, WriteGuard] = {}
        self._snapshot = open_snapshot(path, trust, now_ms=clock_ms(), pin=pin)
        self._served = frozenset(tenants)
        for tenant in sorted(self._served):
            if tenant not in self._snapshot.log_refs:
                raise UsageError(f"no tenant {tenant!r:.80} in {path}")
            self.guard(tenant)
        self.trouble = ""
        """Why the newest version is not in force; empty where it is."""

    @property
    def version(self) -> int:
        """Version of the store in force."""
        return self._snapshot.version

    @property
    def snapshot(self) -> VerifiedSnapshot:
        """The version in force."""
        return self._snapshot

    @property
    def guards(self) -> dict[str, WriteGuard]:
        """The guards made so far, by tenant; at once, also while `refresh` verifies a new version."""
        return dict(self._guards)

    def now_ms(self) -> int:
        """Return the time by the clock of the guards, Unix milliseconds."""
        return self._clock_ms()

    def serves(self, tenant: str) -> bool:
        """Tell whether a tenant may have a guard: it is served, and in the store. At once, as `guards`."""
        return (not self._served or tenant in self._served) and tenant in self._snapshot.log_refs

    def guard(self, tenant: str) -> WriteGuard:
        """Return the guard of a tenant; while `refresh` verifies a new version, by the one in force.

        Raises:
            UsageError: the tenant is not served, or not in the store.
            VerificationError: its log does not verify.
            StalePlanError: versions were erased again and again while they were read.
        """
        for _ in range(TRIES - 1):
            with suppress(StalePlanError):
                return self._guard(tenant)
            self.refresh()  # a vacuum erased the version in force since the last look
        return self._guard(tenant)

    def _guard(self, tenant: str) -> WriteGuard:
        found = self._guards.get(tenant)
        if found is not None:
            return found
        if not self.serves(tenant):
            raise UsageError(f"no guard for tenant {tenant!r:.80}: it is not served here, or not in the store")
        with self._lock:
            found = self._guards.get(tenant)
            if found is None:
                found = self._made(self._block_list(self._snapshot, tenant, self._clock_ms()))
                self._guards = {**self._guards, tenant: found}  # whoever looks takes no lock
            return found

    def refresh(self) -> bool:
        """Put the store's newest version in force for all guards, or none; tombstones that expired go in any case.

        Returns:
            True where there was a newer one.

        Raises:
            AuditError: the newest version cannot be read or does not verify; the old set stays, `trouble` says why.
        """
        with self._refreshing:
            try:
                self._end_expired()
                changed = self._refresh()
            except Exception as error:
                self.trouble = f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
                raise
            expires_ms = self._snapshot.manifest.expires_ms
            stale = expires_ms is not None and self._clock_ms() >= expires_ms
            self.trouble = f"version {self.version} expired and has no successor: publisher gone?" if stale else ""
            return changed

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop where the extractor runs: to load its model, and to close it."""
        return self._thread.run(work)

    def close(self) -> None:
        """Close the guards and the model's thread; the models are their owner's to close."""
        with self._refreshing, self._lock:
            for guard in self._guards.values():
                guard.close()
            self._thread.close()

    def _block_list(self, snapshot: VerifiedSnapshot, tenant: str, now_ms: int) -> BlockList:
        return read_block_list(snapshot, tenant, now_ms=now_ms, **self._models)

    def _end_expired(self) -> None:
        """Let go of what expired: a guard does so with its next write only, and until then it is counted."""
        now_ms = self._clock_ms()
        with self._lock:
            for guard in self._guards.values():
                ends_ms = guard.block_list.next_expiry_ms
                if ends_ms is not None and now_ms >= ends_ms:
                    guard.replace(guard.block_list.without_expired(now_ms))

    def _refresh(self) -> bool:
        for _ in range(TRIES - 1):
            with suppress(StalePlanError):  # a vacuum erased what was the newest version: another one is
                return self._take_newest()
        return self._take_newest()

    def _take_newest(self) -> bool:
        now_ms = self._clock_ms()
        if versions(self._path)[-1] == self._snapshot.version:
            return False
        snapshot = open_snapshot(self._path, self._trust, now_ms=now_ms, pin=self._snapshot.pin())
        fresh: dict[str, BlockList] = {}
        while True:
            for tenant in sorted(self._guards.keys() - fresh):
                fresh[tenant] = self._block_list(snapshot, tenant, now_ms)
            with self._lock:
                if self._guards.keys() <= fresh.keys():  # else one was made by the old version meanwhile
                    for tenant, guard in self._guards.items():  # all are read and verified: from here nothing can fail
                        guard.replace(fresh[tenant])
                    self._snapshot = snapshot
                    return True
