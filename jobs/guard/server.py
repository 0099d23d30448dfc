"""The guard over HTTP, for agents that are not written in Python.

    POST /check     a write as JSON (the fields of an entry), or several as JSON lines (application/x-ndjson), which are
                    judged in order; answers {"allowed": …, "reason": …, …} or {"decisions": […]}
    GET  /health    {"status": "ok" | "stale", "version": 7, "pinned": true}; stale: the store's newest version is not
                    in force, or no look at the store has ended for a minute longer than it should; pinned: what was
                    seen of it is kept, so that a rollback is refused after a restart too
    GET  /metrics   Prometheus text

With a token every request but /health needs `Authorization: Bearer TOKEN`. Without one only requests to localhost are
answered, by their `Host`: a web page can have its own name point at this machine, and ask from a browser on it.
Connections (`memory_audit.jobs.guard.connections`), bodies, lines and waiting requests are bounded, and so is the time
for headers and bodies. A refused write is an answer, not an error: its status is 200. 400 is a write that breaks a
rule, 404 a tenant that is not served, 408 a body that took too long, 413 too much in one request, 415 another type than
JSON or a packed body, 421 another host, 503 too many at once, a guard that cannot be made or a log that cannot be
written, for which standard error has the reason: an agent must not store what got no 200. Of a failure the answer has
the reason and no `detail`: that is for log and standard error, which are bounded whatever clients do.
"""

from __future__ import annotations

import asyncio
import gc
import hmac
import logging
import re
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from memory_audit.errors import AuditError, IncompleteError, UsageError
from memory_audit.guard.decision_log import as_record
from memory_audit.jobs.clock import now_ms
from memory_audit.jobs.guard.bodies import Bodies, parse_writes
from memory_audit.jobs.guard.connections import Connections
from memory_audit.jobs.guard.following import Follower, Pinned
from memory_audit.jobs.guard.told import Told, UnforeseenErrors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from memory_audit.entry import Entry
    from memory_audit.guard.decide.guard_decision import GuardDecision
    from memory_audit.guard.guard import WriteGuard
    from memory_audit.guard.guarded_store import GuardedStore
    from memory_audit.snapshot.reader import VerifiedSnapshot

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

__all__ = ["bound", "serve_guard", "serving"]

MAX_BODY_BYTES = 4 << 20
"""A few entries at their limit, or thousands of usual ones."""

MAX_WAITING = 256
"""Requests under way, or a quarter of the connections where that is less; more get 503, so that a burst costs waiting
agents and neither memory nor the places of newcomers."""

MAX_READING = 256
"""Bodies on their way in, likewise; counted apart, since who sends slowly must not stop the others."""

WORKERS = 32
"""Threads in which the guards read writes; known ones need none, and neither does who waits for a model's server."""

PARSERS = 2
"""Threads that parse writes: never those that wait for a model, so that known writes stay fast."""

SHUTDOWN_S = 60.0
"""Time for requests under way when the server ends."""

_OWN_HOST = re.compile(r"(localhost\.?|127(\.\d{1,3}){3}|\[::1\])(:\d*)?", re.ASCII | re.IGNORECASE)
"""Names that no other machine has; of addresses those of this machine alone, for without a token it listens there."""

_BUCKETS_S = (0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Meters:
    """Prometheus metrics of one server.

    Args:
        guarded: The guards.
        stale: Tells whether the newest version is not in force.
        connections: Counts those that are open.
    """

    def __init__(self, guarded: GuardedStore, stale: Callable[[], bool], connections: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()
        self.decisions = Counter("memaudit_guard_decisions", "Writes judged.", ["allowed", "reason"], registry=registry)
        self.seconds = Histogram(
            "memaudit_guard_check_seconds", "Time to judge one request.", buckets=_BUCKETS_S, registry=registry
        )
        self.errors = Counter("memaudit_guard_errors", "Requests refused, by status.", ["status"], registry=registry)
        self.reloads = Counter(
            "memaudit_guard_reloads", "Looks at the store that found a newer version.", ["ok"], registry=registry
        )

        def each(figure: Callable[[WriteGuard], int]) -> Callable[[], int]:
            return lambda: sum(map(figure, guarded.guards.values()))

        for name, what, value in (
            ("store_version", "Version in force.", lambda: guarded.version),
            ("stale", "1 where the newest version is not in force.", stale),
            ("tombstones", "Hazard tombstones in force.", each(lambda guard: len(guard.block_list))),
            (
                "tombstones_words_only", "Of these, keep out no paraphrase: made without the models in use.",
                each(lambda guard: guard.words_only),
            ),
            ("connections", "Connections open.", connections),
            ("model_texts", "Texts shown to the model so far.", each(lambda guard: guard.counters["asked"])),
        ):  # fmt: skip
            Gauge(f"memaudit_guard_{name}", what, registry=registry).set_function(value)

    def refused(self, status: int) -> None:
        """Count a request that was refused."""
        self.errors.labels(str(status)).inc()

    def looked(self, ok: bool) -> None:  # noqa: FBT001 - the only thing there is to say
        """Count a look at the store that found a newer version, or failed."""
        self.reloads.labels(str(ok).lower()).inc()


def _application(
    guarded: GuardedStore, *, token: str, refresh_s: float, keep: Callable[[VerifiedSnapshot], None]
) -> tuple[web.Application, Connections]:
    """Build the server, and what accepts its connections; arguments as of `serving`."""
    tell = Told()
    connections = Connections(partial(tell, "accept"))
    bodies = Bodies(min(MAX_READING, connections.quarter))
    pinned = Pinned(guarded, keep, tell)
    follower = Follower(guarded, pinned, refresh_s, tell)
    meters = _Meters(guarded, lambda: follower.stale, lambda: connections.count)
    unforeseen = UnforeseenErrors(meters.refused)
    most_waiting = min(MAX_WAITING, connections.quarter)
    parsers = ThreadPoolExecutor(PARSERS, "memaudit-parse")
    waiting = 0

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check host and token, turn errors into statuses, count them."""
        here = bool(token) or all(map(_OWN_HOST.fullmatch, request.headers.getall("Host", ())))
        known = here and request.path != "/health" and _authorised(request, token)
        with connections.busy(request.transport, known=known):
            try:
                if not here:
                    raise web.HTTPMisdirectedRequest(reason="without a token no host but localhost is served")
                if not known and request.path != "/health":
                    raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})
                if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
                    raise web.HTTPUnsupportedMediaType(
                        headers={"Accept-Encoding": "identity"}, reason="expected no Content-Encoding"
                    )
                return await handler(request)
            except web.HTTPException as error:
                meters.refused(error.status)
                headers = {name: value for name, value in error.headers.items() if name != "Content-Type"}
                return web.json_response({"error": error.reason}, status=error.status, headers=headers)
            except UsageError as error:
                meters.refused(400)
                return web.json_response({"error": str(error)[:600]}, status=400)
            except AuditError as error:
                meters.refused(503)
                tell("judge", str(error))
                return web.json_response({"error": "cannot be judged or logged now: ask the operator"}, status=503)

    def made(decision: GuardDecision) -> None:
        """Count a decision as soon as it is made, since its request may fail yet, and tell of a failure."""
        meters.decisions.labels(str(decision.allowed).lower(), decision.reason).inc()
        if decision.failed:
            tell(decision.reason, f"a write could not be judged: {decision.reason}: {decision.detail}")

    async def check(request: web.Request) -> web.Response:
        nonlocal waiting
        body = await bodies.read(request)
        if waiting >= most_waiting:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"}, reason="too many writes at once")
        waiting += 1
        started = time.perf_counter()
        try:
            parse = partial(parse_writes, body, request.content_type, now_ms=now_ms())
            entries, several = await asyncio.get_running_loop().run_in_executor(parsers, parse)
            if not all(guarded.serves(entry.tenant) for entry in entries):
                raise web.HTTPNotFound(reason="this tenant is not served here")
            try:
                decisions = await _judge(guarded, entries, made)
            finally:
                meters.seconds.observe(time.perf_counter() - started)
        finally:
            waiting -= 1
        records = [as_record(entry, _shown(decision)) for entry, decision in zip(entries, decisions, strict=True)]
        return web.json_response({"decisions": records} if several else records[0])

    async def health(_: web.Request) -> web.Response:
        status = "stale" if follower.stale else "ok"
        return web.json_response({"status": status, "version": guarded.version, "pinned": not pinned.trouble})

    async def metrics(_: web.Request) -> web.Response:
        text = generate_latest(meters.registry)
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def follow(_: web.Application) -> AsyncIterator[None]:
        """Look for newer versions while the server runs."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(WORKERS, "memaudit-guard"))
        loop.set_exception_handler(unforeseen.in_loop)
        task = asyncio.create_task(follower.run(meters.looked))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(pinned.keep)
        parsers.shutdown(wait=False)

    log = logging.Logger("memaudit.guard", logging.WARNING)  # noqa: LOG001 - with this server's handler alone
    log.addHandler(unforeseen)
    application = web.Application(
        middlewares=[gate], client_max_size=MAX_BODY_BYTES, handler_args={"auto_decompress": False, "logger": log}
    )
    application.router.add_post("/check", check)
    application.router.add_get("/health", health)
    application.router.add_get("/metrics", metrics)
    application.cleanup_ctx.append(follow)
    return application, connections


@contextmanager
def bound(host: str, port: int) -> Iterator[Sequence[socket.socket]]:
    """Take all addresses of a host, and yield them; who connects is refused until they are served.

    Raises:
        UsageError: an address cannot be used.
    """
    with ExitStack() as opened:
        sockets = []
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(places):
                taken = opened.enter_context(socket.socket(family, kind, protocol))
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:  # 0.0.0.0 is taken by itself
                    taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                taken.bind(address)
                sockets.append(taken)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot listen on {host} port {port}: {reason!s:.120}") from None
        yield sockets


@asynccontextmanager
async def serving(
    guarded: GuardedStore,
    sockets: Sequence[socket.socket],
    *,
    token: str,
    refresh_s: float,
    keep: Callable[[VerifiedSnapshot], None],
) -> AsyncIterator[None]:
    """Serve for as long as the block runs.

    Args:
        guarded: The guards; the caller closes it.
        sockets: As of `bound`.
        token: Needed by every request but /health; empty needs none.
        refresh_s: How often to look for a newer version of the store.
        keep: Keeps what was seen of the store; called in a thread with each newer version, and once more at the end. It
            may raise: the server goes on, and tells.

    Raises:
        UsageError: an address was taken by somebody else after all.
    """
    application, connections = _application(guarded, token=token, refresh_s=refresh_s, keep=keep)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        async with connections.accepting(sockets, cast("web.Server", runner.server)):  # there since the setup
            yield
    finally:
        await runner.cleanup()


def serve_guard(
    guarded: GuardedStore,
    sockets: Sequence[socket.socket],
    *,
    token: str,
    refresh_s: float,
    keep: Callable[[VerifiedSnapshot], None],
) -> None:
    """Serve until SIGINT or SIGTERM; arguments and errors as of `serving`."""
    if not token:
        print("no token was given: every process on this machine may ask", file=sys.stderr)  # noqa: T201

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        async with serving(guarded, sockets, token=token, refresh_s=refresh_s, keep=keep):
            for number in before:
                loop.add_signal_handler(number, stop.set)
            gc.collect()
            gc.freeze()  # connections leave garbage: to look for it through models and store too stops all for 0.1 s
            _say(f"Running on {', '.join(map(_url, sockets))} (Ctrl-C ends it)")
            await stop.wait()
            for number, handler in before.items():  # a second signal does not wait for what is under way
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    asyncio.run(serve())


async def _judge(
    guarded: GuardedStore, entries: Sequence[Entry], made: Callable[[GuardDecision], None]
) -> list[GuardDecision]:
    """Judge writes of tenants that are served, in order, once the guards of all are there.

    Args:
        guarded: The guards.
        entries: The writes.
        made: Called with each decision as it is made.

    Raises:
        AuditError: a guard cannot be made, or a decision not be logged; no UsageError, for these writes broke no rule.
    """
    try:
        guards = {name: await _guard(guarded, name) for name in dict.fromkeys(entry.tenant for entry in entries)}
        decisions = []
        for entry in entries:
            decisions.append(await guards[entry.tenant].check_async(entry))
            made(decisions[-1])
    except UsageError as error:
        raise IncompleteError(str(error)) from error
    return decisions


async def _guard(guarded: GuardedStore, tenant: str) -> WriteGuard:
    known = guarded.guards.get(tenant)
    return await asyncio.to_thread(guarded.guard, tenant) if known is None else known


def _shown(decision: GuardDecision) -> GuardDecision:
    """Return what a client may see: why a model failed names files and servers, and is the operator's."""
    return replace(decision, detail="") if decision.failed else decision


def _authorised(request: web.Request, token: str) -> bool:
    """Compare in constant time, so that a token cannot be guessed letter by letter."""
    if not token:
        return True
    given = request.headers.get("Authorization", "")
    return hmac.compare_digest(given.encode(errors="replace"), f"Bearer {token}".encode())


def _url(taken: socket.socket) -> str:
    host, port = taken.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - scripts wait for it
