"""One thread with one event loop for everything that talks to a model: a model's client belongs to one loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from memory_audit.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

T = TypeVar("T")

__all__ = ["ModelThread"]

MOST_AWAITED = 32
"""By one event loop: others wait for their turn, and their time does not run yet. A burst must not time out at once."""


class ModelThread:
    """Started when first used, ended by `close`. May be shared by guards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._turns = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()
        self._closed = False

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine to its end, from any other thread.

        Raises:
            ModelError: it took longer than `timeout_s`, or a time-out of its own ended it.
            UsageError: the thread is closed.
        """
        future = self._begun(work)
        wait([future], timeout_s)
        return _result(future, timeout_s)

    async def wait(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        """Await what runs here, when it is its turn; it is cancelled with who waits. Raises like `run`."""
        turns = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MOST_AWAITED))
        async with turns:
            future = self._begun(work())
            awaited = asyncio.wrap_future(future)
            try:
                await asyncio.wait([awaited], timeout=timeout_s)
            except asyncio.CancelledError:
                future.cancel()
                raise
            if awaited.done() and not awaited.cancelled():
                awaited.exception()  # seen here: asyncio would log it
            return _result(future, timeout_s)

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

    def _begun(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._loop is None and not self._closed:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="memaudit-model", daemon=True)
                self._thread.start()
            loop = self._loop
        if loop is None:
            work.close()
            raise UsageError("the model's thread is closed")
        return asyncio.run_coroutine_threadsafe(work, loop)


def _result(future: Future[T], timeout_s: float | None) -> T:
    if not future.done():
        future.cancel()
        raise ModelError(f"no answer in {timeout_s:g} seconds")
    try:
        return future.result()
    except TimeoutError as error:
        raise ModelError(f"a model's own time-out: {str(error) or 'no word on it'}") from None


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
