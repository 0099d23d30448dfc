"""Ctrl-C while a library starts that takes KeyboardInterrupt for its own affair.

vLLM's `zmq_socket_ctx` swallows one that comes while an engine starts, and then waits ten minutes for the engine that
it has just given up. Another exception gets through.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["interruptible"]


class _Interrupted(BaseException):
    """What the block sees in place of a KeyboardInterrupt."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt where a signal interrupted the block, also if the block swallows those of its own.

    Only signals count that raise one outside the block too, and only in the main thread, which alone gets any.
    """
    alone = threading.current_thread() is threading.main_thread()
    signals = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if alone and signal.getsignal(number) is signal.default_int_handler
    ]
    for number in signals:
        signal.signal(number, _raise)
    try:
        yield
    except _Interrupted:
        raise KeyboardInterrupt from None
    finally:
        for number in signals:
            signal.signal(number, signal.default_int_handler)


def _raise(_number: int, _frame: object) -> NoReturn:
    raise _Interrupted
