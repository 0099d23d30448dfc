"""Follows the store of a guard that is served: its newest version, and the pin of what was seen."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_audit.guard.guarded_store import GuardedStore
    from memory_audit.jobs.guard.told import Told
    from memory_audit.snapshot.reader import VerifiedSnapshot

__all__ = ["Follower", "Pinned"]

LOOK_S = 60.0
"""Time for one look at the store: one that takes longer, or never comes, leaves a newer version out of force."""


class Follower:
    """Looks for newer versions of the store while the server runs; no error ends it.

    Args:
        guarded: Follows the store.
        pinned: Keeps what was seen of it.
        refresh_s: How often to look.
        tell: Tells the operator.
    """

    def __init__(self, guarded: GuardedStore, pinned: Pinned, refresh_s: float, tell: Told) -> None:
        self._guarded, self._pinned, self._refresh_s, self._tell = guarded, pinned, refresh_s, tell
        self._looked_s = time.monotonic()

    @property
    def stale(self) -> bool:
        """The newest version is not in force, or no look has ended for longer than one may take."""
        return bool(self._guarded.trouble) or time.monotonic() - self._looked_s > self._refresh_s + LOOK_S

    async def run(self, looked: Callable[[bool], None]) -> None:
        """Look until cancelled.

        Args:
            looked: Called with True for a look that found a newer version, and False for one that failed.
        """
        while True:
            await asyncio.sleep(self._refresh_s)
            try:
                await self._look(looked)
            except Exception as error:  # noqa: BLE001 - told; where it stays so, `stale` says it too
                self._tell("look", f"the store was not looked at: {type(error).__name__}: {error}")
            else:
                self._looked_s = time.monotonic()

    async def _look(self, looked: Callable[[bool], None]) -> None:
        changed = False
        try:
            changed = await asyncio.to_thread(self._guarded.refresh)
            if changed:
                looked(True)
        except Exception:  # noqa: BLE001 - the old set stays in force, and `trouble` has the reason
            looked(False)
        if changed or self._pinned.trouble:
            await asyncio.to_thread(self._pinned.keep)
        if self._guarded.trouble:
            self._tell("stale", f"the newest version of the store is not in force: {self._guarded.trouble}")
        else:
            self._tell.ended("stale")


class Pinned:
    """Keeps the version in force as seen: a store that is rolled back while the server is down must be refused.

    Args:
        guarded: Has what was seen.
        keep: Keeps it; may raise.
        tell: Tells the operator.
    """

    def __init__(self, guarded: GuardedStore, keep: Callable[[VerifiedSnapshot], None], tell: Told) -> None:
        self._guarded, self._keep, self._tell = guarded, keep, tell
        self._lock = threading.Lock()  # at the end a call may still be under way
        self.trouble = ""
        """Why it is not kept; empty where it is."""

    def keep(self) -> None:
        """Keep it; where that fails the server goes on, and the next look at the store tries again."""
        with self._lock:
            try:
                self._keep(self._guarded.snapshot)
            except Exception as error:  # noqa: BLE001 - told, and in /health
                self.trouble = str(error) or type(error).__name__
                self._tell("pin", f"a rollback of the store would go unseen after a restart: {self.trouble}")
            else:
                self.trouble = ""
                self._tell.ended("pin")
