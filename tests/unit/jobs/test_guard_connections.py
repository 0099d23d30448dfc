"""Connections are bounded: who asks nothing makes room, who has asked stays, and everybody new gets in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket

import pytest

from memory_audit.jobs.guard import connections as guard_connections
from memory_audit.jobs.guard.connections import Connections
from tests.unit.jobs.test_guard_server import HARMLESS, KeptPin, leave, serving

MOST = 8
WRITE = (
    f"POST /check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(json.dumps(HARMLESS))}\r\n\r\n{json.dumps(HARMLESS)}"
).encode()


class Crowd:
    """Connections to one server, closed at the end."""

    def __init__(self, client) -> None:
        self.client, self._opened = client, []

    async def connect(self, data=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.client.base_url.port)
        self._opened.append((reader, writer))
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def asked(self):
        """A connection that has asked."""
        connection = await self.connect()
        assert await ask(connection) == 200
        return connection

    async def leave(self):
        await leave(*self._opened)


@pytest.fixture
async def crowd(tmp_path, monkeypatch):
    """A server that asks for no token and has few places."""
    monkeypatch.setattr(guard_connections, "MAX_CONNECTIONS", MOST)
    async with serving(tmp_path / "s", KeptPin(), token="") as client:
        found = Crowd(client)
        yield found
        await found.leave()


async def status(reader):
    """The status of one answer; 0 where the connection was closed."""
    async with asyncio.timeout(20):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (ConnectionError, EOFError):
            return 0
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split()[1]))
        return int(head.split()[1])


async def ask(connection, write=WRITE):
    reader, writer = connection
    writer.write(write)
    await writer.drain()
    return await status(reader)


async def closed(connection):
    """Wait until the server closes it."""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            while await connection[0].read(1 << 16):
                pass
    return True


@pytest.mark.parametrize("sent", [b"", b"POST /check HTTP/1.1\r\nHost: localh"])
async def test_of_strangers_too_many_the_oldest_makes_room(crowd, sent):
    strangers = [await crowd.connect(sent) for _ in range(3 * MOST)]
    assert await ask(await crowd.connect()) == 200
    assert all([await closed(connection) for connection in strangers[: 2 * MOST]])


async def test_who_has_asked_is_not_driven_out_by_strangers(crowd):
    known = [await crowd.asked() for _ in range(MOST // 2 - 1)]
    for _ in range(5 * MOST):
        await crowd.connect()
    assert [await ask(connection) for connection in known] == [200] * len(known)


async def test_a_request_under_way_is_not_driven_out(crowd):
    slow = await crowd.connect(WRITE[:-9])
    await asyncio.sleep(0.1)
    for _ in range(5 * MOST):
        await crowd.connect()
    for _ in range(5 * MOST):
        await crowd.asked()
    assert await ask(slow, WRITE[-9:]) == 200


async def test_a_newcomer_gets_in_where_those_who_asked_fill_all_places(crowd):
    for _ in range(3 * MOST):
        await crowd.asked()
    newcomers = [await crowd.connect() for _ in range(MOST // 2 - 1)]
    assert [await ask(connection) for connection in newcomers] == [200] * len(newcomers)


async def test_newcomers_get_in_where_bodies_come_slowly(crowd):
    for _ in range(3 * MOST):
        await crowd.connect(WRITE[:-9])
    assert await ask(await crowd.connect()) == 200


async def test_who_takes_no_answer_keeps_no_place(crowd):
    greedy = []
    for _ in range(MOST):
        begun = socket.socket()
        greedy.append(begun)
        begun.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        begun.setblocking(False)
        await asyncio.get_running_loop().sock_connect(begun, ("127.0.0.1", crowd.client.base_url.port))
        begun.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)
    await asyncio.sleep(0.5)
    assert await ask(await crowd.connect()) == 200
    for begun in greedy:
        begun.close()


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: localh", b"GET /health HTTP/1.1\r\nX: "])
async def test_a_stranger_has_limited_time_for_headers_however_slowly_they_come(crowd, monkeypatch, sent):
    monkeypatch.setattr(guard_connections, "HEADERS_S", 0.5)
    connection = await crowd.connect(sent)

    async def trickle():
        while sent:
            connection[1].write(b"x")
            await asyncio.sleep(0.05)

    task = asyncio.create_task(trickle())
    assert await closed(connection)
    task.cancel()


async def test_who_has_asked_has_more_time_than_a_stranger(crowd, monkeypatch):
    monkeypatch.setattr(guard_connections, "HEADERS_S", 0.2)
    known, stranger = await crowd.asked(), await crowd.connect()
    assert await closed(stranger)
    assert await ask(known) == 200
    monkeypatch.setattr(guard_connections, "IDLE_S", 0.2)
    assert await ask(known) == 200
    assert await closed(known)


async def test_open_connections_are_in_the_metrics(crowd):
    for _ in range(3):
        await crowd.connect()
    assert "memaudit_guard_connections 4.0" in (await crowd.client.get("/metrics")).text.splitlines()


@pytest.mark.parametrize(("files", "most"), [(100, 50), (1_000_000, guard_connections.MAX_CONNECTIONS)])
async def test_half_of_the_files_are_left_to_others(monkeypatch, files, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert Connections(print).most == most


class Greeting(asyncio.Protocol):
    """Answers the first byte."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


async def test_where_the_system_has_no_more_files_it_is_told_and_whoever_came_is_served_later():
    told, soft_hard = [], resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as listening, socket.socket() as came:
        listening.bind(("127.0.0.1", 0))
        async with Connections(told.append).accepting([listening], Greeting):
            came.settimeout(0.01)
            came.connect(listening.getsockname())
            came.send(b"1")
            os.close(free := os.dup(came.fileno()))  # the one that the next file would get
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, soft_hard[1]))
                await asyncio.sleep(0.5)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, soft_hard)
            assert set(told) == {"a connection could not be accepted: Too many open files"}
            assert len(told) < 20
            came.setblocking(False)
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(came, 1), 20) == b"1"


async def test_at_the_end_who_sent_nothing_is_closed_and_who_comes_is_refused():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = listening.getsockname()
        async with Connections(print).accepting([listening], Greeting):
            silent, later = [await asyncio.open_connection(*address) for _ in range(2)]
            later[1].write(b"1")
            assert await later[0].read(1) == b"1"
        assert await closed(silent)
        await leave(silent, later)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)


@pytest.mark.parametrize(
    ("parts", "handed_on"),
    [
        ([b"POST /check HTTP/1.1\r\nHost: a\r\n"], b""),
        ([b"POST / HTTP/1.1\r\n", b"\r", b"\nbody"], b"POST / HTTP/1.1\r\n\r\nbody"),
        ([b"GET /\n", b"\n"], b"GET /\n\n"),
        ([b"\x16\x03\x01"], b"\x16\x03\x01"),
        ([b"G" * 5_000, b"G" * 5_000], b"G" * 10_000),
    ],
    ids=["not all headers", "headers in parts", "bare line feeds", "no request", "a line without an end"],
)
async def test_who_has_not_sent_all_headers_is_handed_to_no_server(parts, handed_on):
    heard = bytearray()

    class Hearing(asyncio.Protocol):
        def data_received(self, data):
            heard.extend(data)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        async with Connections(print).accepting([listening], Hearing):
            connection = await asyncio.open_connection(*listening.getsockname())
            for part in parts:
                connection[1].write(part)
                await connection[1].drain()
                await asyncio.sleep(0.05)
            assert bytes(heard) == handed_on
            await leave(connection)
