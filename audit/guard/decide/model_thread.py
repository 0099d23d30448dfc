"""One thread with one event loop for everything that talks to a model: a model's client belongs to one loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, TypeVar

from memory_audit.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

__all__ = ["ModelThread"]


class ModelThread:
    """Started when first used, ended by `close`. May be shared by guards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine to its end, from any other thread.

        Raises:
            ModelError: it took longer than `timeout_s`, or a time-out of its own ended it.
            UsageError: the thread is closed.
        """
        with self._lock:
            if self._loop is None and not self._closed:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="memaudit-model", daemon=True)
                self._thread.start()
            loop = self._loop
        if loop is None:
            work.close()
            raise UsageError("the model's thread is closed")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        if not wait([future], timeout_s).done:
            future.cancel()
            raise ModelError(f"no answer in {timeout_s:g} seconds")
        try:
            return future.result()
        except TimeoutError as error:
            raise ModelError(f"a model's own time-out: {str(error) or 'no word on it'}") from None

    def close(self) -> None:
        """Cancel what is running and end the thread. Idempotent."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
