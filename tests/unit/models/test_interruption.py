"""An interruption gets through a library that swallows it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from memory_audit.models.backbone.interruption import interruptible


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_that_the_block_swallows_ends_it(number):
    signal.signal(number, signal.default_int_handler)
    swallowed = False
    with pytest.raises(KeyboardInterrupt), interruptible():  # noqa: PT012 - the block is what is tested
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:  # as vLLM does
            swallowed = True
    assert not swallowed
    assert signal.getsignal(number) is signal.default_int_handler


def test_a_handler_of_somebody_else_stays_and_other_threads_change_none():
    heard = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts its background jobs without
    signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    with interruptible():
        os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]

    def elsewhere():
        with interruptible():
            heard.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert heard[1] is signal.default_int_handler
