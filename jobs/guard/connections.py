"""Connections of a server, bounded: of too many the one goes that has longest asked for nothing.

A connection is busy from when a request's headers are there until its answer is made; no busy one is closed to make
room. The others are known, or strangers, which have shown nothing that allows them to ask. Where all places are taken,
the larger of these two groups loses its oldest: strangers who fill a server drive out one another and nobody who is
known, and known ones that stay leave room for newcomers. Where all are busy, newcomers wait in the system's queue. A
stranger has limited time for its headers, whether it sends nothing or a byte now and then.
"""

from __future__ import annotations

import asyncio
import re
import resource
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from memory_audit.errors import UsageError

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

__all__ = ["Connections"]

MAX_CONNECTIONS = 1_024
"""Twice what can be busy; an idle one costs some 10 KB."""

QUEUE = 4_096
"""Newcomers that wait in the system's queue, where it allows so many; those beyond it try again after a second."""

MAX_BEGUN = 8_192
"""Bytes of headers that are kept until their end is there: as many as one line of them may have."""

HEADERS_S = 10.0
"""A stranger's time to send the headers of a request."""

IDLE_S = 650.0
"""A known connection's time without a request: more than proxies take (600 s), so that it is they who close."""

ACCEPT_AGAIN_S = 0.1
"""Time until the next try, where the system could not give a connection."""

_END = re.compile(rb"\n\r?\n")


class Connections:
    """The connections of one server: half as many as this process may open files, and at most `MAX_CONNECTIONS`.

    Args:
        tell: Called with the reason where a connection could not be accepted.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MAX_CONNECTIONS, soft // 2))
        self._tell = tell
        self._open: set[_Connection] = set()
        self._idle: dict[bool, dict[_Connection, None]] = {False: {}, True: {}}  # strangers and known, oldest first
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def quarter(self) -> int:
        """How many may be busy with one of two things, so that half of all are never busy."""
        return max(1, self.most // 4)

    @asynccontextmanager
    async def accepting(
        self, sockets: Sequence[socket.socket], server: Callable[[], asyncio.Protocol]
    ) -> AsyncIterator[None]:
        """Accept connections for as long as the block runs.

        Args:
            sockets: Bound to their addresses; here they begin to listen, and in the end are closed.
            server: Makes the protocol that serves one connection.

        Raises:
            UsageError: an address was taken by somebody else after all.
        """
        for listening in sockets:
            listening.setblocking(False)
            try:
                listening.listen(QUEUE)
            except OSError as error:
                raise UsageError(f"cannot listen: {error.strerror or error}") from None
        tasks = [asyncio.create_task(self._accept(listening, server)) for listening in sockets]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for listening in sockets:  # who comes while the last requests end is told at once
                listening.close()
            for stranger in tuple(self._idle[False]):  # those that sent nothing are served by nobody who could
                stranger.abort()

    @contextmanager
    def busy(self, transport: asyncio.BaseTransport | None, *, known: bool) -> Iterator[None]:
        """Keep a connection for as long as the block runs.

        Args:
            transport: That of the request; None where it is closed already.
            known: The request shows that it may ask.
        """
        connection = None if transport is None else cast("asyncio.Transport", transport).get_protocol()
        if not isinstance(connection, _Connection):
            yield
            return
        self._take(connection)
        try:
            yield
        finally:
            connection.known |= known
            if connection in self._open:
                self._put(connection)

    def opened(self, connection: _Connection) -> None:
        """Count a connection."""
        self._open.add(connection)
        self._put(connection)

    def closed(self, connection: _Connection) -> None:
        """Count a connection no more."""
        self._open.discard(connection)
        self._take(connection)
        self._changed.set()

    async def _accept(self, listening: socket.socket, server: Callable[[], asyncio.Protocol]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room()
            try:
                taken, _ = await loop.sock_accept(listening)
                await loop.connect_accepted_socket(partial(_Connection, self, server), taken)
            except ConnectionError:  # who came has left
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, the next one is to be served
                reason = error.strerror if isinstance(error, OSError) else type(error).__name__
                self._tell(f"a connection could not be accepted: {reason}")
                await asyncio.sleep(ACCEPT_AGAIN_S)

    async def _room(self) -> None:
        """Wait until a place is free, and close what idles for it."""
        while len(self._open) >= self.most:
            larger = max(self._idle.values(), key=len)
            if larger:
                oldest = next(iter(larger))
                self._take(oldest)
                oldest.abort()
            self._changed.clear()
            await self._changed.wait()

    def _put(self, connection: _Connection) -> None:
        """Let a connection idle: from now on it may be closed to make room, and in some time is."""
        self._idle[connection.known][connection] = None
        connection.close_in(IDLE_S if connection.known else HEADERS_S)
        self._changed.set()

    def _take(self, connection: _Connection) -> None:
        self._idle[connection.known].pop(connection, None)
        connection.close_in(None)


class _Connection(asyncio.Protocol):
    """Tells of a connection's begin and end, and hands what comes to the protocol that serves it.

    That one is made once the headers of a request are there: who sends none, or not all, costs a file and little else.
    What does not begin like a request, or has no end, is handed on as it is, to be refused.
    """

    def __init__(self, connections: Connections, server: Callable[[], asyncio.Protocol]) -> None:
        self._connections, self._server = connections, server
        self._served: asyncio.Protocol | None = None
        self._begun = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.known = False

    def close_in(self, seconds: float | None) -> None:
        """Close it after so many seconds, and not after those said before; None: not by itself."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.abort)

    def abort(self) -> None:
        """Close it now, with what was not sent: who takes no answer would keep it open."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`, as for all that follow."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.opened(self)

    def data_received(self, data: bytes) -> None:
        """Hand it on."""
        if self._served is None:
            before, self._begun = len(self._begun), self._begun + data
            ended = _END.search(self._begun, max(0, before - 2)) or len(self._begun) >= MAX_BEGUN
            if not ended and self._begun[:1].isalpha():
                return
            data, self._begun = self._begun, b""
            self._served = self._server()
            self._served.connection_made(cast("asyncio.Transport", self._transport))
        self._served.data_received(data)

    def eof_received(self) -> bool | None:
        """Hand it on; a connection on which nothing came is closed."""
        return None if self._served is None else self._served.eof_received()

    def pause_writing(self) -> None:
        """Hand it on: who writes is there."""
        cast("asyncio.Protocol", self._served).pause_writing()

    def resume_writing(self) -> None:
        """Hand it on."""
        cast("asyncio.Protocol", self._served).resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand it on, and forget it."""
        self._connections.closed(self)
        # asyncio's transport refers to itself by its reader: collecting a thousand of them a second stops all others
        getattr(self._transport, "__dict__", {}).pop("_read_ready_cb", None)
        if self._served is not None:
            self._served.connection_lost(exc)
