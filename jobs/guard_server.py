"""The guard over HTTP, for agents that are not written in Python.

    POST /check     a write as JSON (the fields of an entry), or several as JSON lines (application/x-ndjson), which are
                    judged in order; answers {"allowed": …, "reason": …, …} or {"decisions": […]}
    GET  /health    {"status": "ok" | "stale", "version": 7, "pinned": true}; stale: the store's newest version is not
                    in force, or no look at the store has ended for a minute longer than it should; pinned: what was
                    seen of it is kept, so that a rollback is refused after a restart too
    GET  /metrics   Prometheus text

With a token every request but /health needs `Authorization: Bearer TOKEN`. Bodies, lines and waiting requests are
bounded, and so is the time that a body may take; headers have aiohttp's time for an idle connection. A refused write is
an answer, not an error: its status is 200. 400 is a write that breaks a rule, 404 a tenant that is not served, 408 a
body that took too long, 413 too much in one request, 415 another type than JSON or a packed body, 503 too many at once,
a guard that cannot be made or a log that cannot be written, for which standard error has the reason: an agent must not
store what got no 200. Of a failure the answer has the reason and no `detail`: that is for log and standard error, which
get nothing that a client can fill a disk with.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from audit.errors import AuditError, IncompleteError, UsageError
from audit.forget.decision import FAILURES
from audit.forget.decision_log import as_record
from audit.forget.recent_writes import UNNAMED
from audit.report.untrusted import as_line
from jobs.clock import now_ms
from jobs.import_jsonl import parse_entries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from audit.entry import Entry
    from audit.forget.decision import Decision
    from audit.forget.guard import WriteGuard
    from audit.forget.guarded_store import GuardedStore
    from audit.snapshot.reader import VerifiedSnapshot

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

__all__ = ["bound", "guard_application", "parse_writes", "serve_guard"]

MAX_BODY_BYTES = 4 << 20
"""A few entries at their limit, or thousands of usual ones."""

MAX_LINES = 1_000
MAX_WAITING = 256
"""Requests under way; more get 503, so that a burst costs waiting agents and not memory."""

MAX_READING = 256
"""Bodies on their way in, for the same reason; counted apart, since who sends slowly must not stop the others."""

BODY_S = 10.0
"""Time for a body: the largest comes in it at 3.4 Mbit/s."""

WORKERS = 32
"""Threads that wait for embedder and model; known writes need none."""

PARSERS = 2
"""Threads that parse writes: never those that wait for a model, so that known writes stay fast."""

LOOK_S = 60.0
"""Time for one look at the store: one that takes longer, or never comes, leaves a newer version out of force."""

CALM_S = 60.0
"""Time between two lines on standard error about one kind of failure, whose words a writer may have a part in."""

MOST_TOLD = 100
"""Lines about requests that went wrong; there are fewer kinds, unless the code has a fault."""

_BUCKETS_S = (0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Meters:
    """Prometheus metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.decisions = Counter(
            "memaudit_guard_decisions", "Writes judged.", ["allowed", "reason"], registry=self.registry
        )
        self.seconds = Histogram(
            "memaudit_guard_check_seconds", "Time to judge one request.", buckets=_BUCKETS_S, registry=self.registry
        )
        self.errors = Counter(
            "memaudit_guard_errors", "Requests refused, by status.", ["status"], registry=self.registry
        )
        self.reloads = Counter(
            "memaudit_guard_reloads", "Looks at the store that found a newer version.", ["ok"], registry=self.registry
        )
        self.version = Gauge("memaudit_guard_store_version", "Version in force.", registry=self.registry)
        self.stale = Gauge(
            "memaudit_guard_stale", "1 where the newest version is not in force.", registry=self.registry
        )
        self.tombstones = Gauge("memaudit_guard_tombstones", "Hazard tombstones in force.", registry=self.registry)
        self.words_only = Gauge(
            "memaudit_guard_tombstones_words_only", "Of these, keep out no paraphrase: made without the models in use.",
            registry=self.registry,
        )  # fmt: skip
        self.asked = Gauge("memaudit_guard_model_texts", "Texts shown to the model so far.", registry=self.registry)

    def text(self, guarded: GuardedStore, *, stale: bool) -> bytes:
        """Return the metrics in Prometheus' text format."""
        guards = guarded.guards.values()
        self.version.set(guarded.version)
        self.stale.set(stale)
        self.tombstones.set(sum(len(guard.lockout) for guard in guards))
        self.words_only.set(sum(guard.words_only for guard in guards))
        self.asked.set(sum(guard.counters["asked"] for guard in guards))
        return generate_latest(self.registry)


def guard_application(
    guarded: GuardedStore, *, token: str, refresh_s: float, keep: Callable[[VerifiedSnapshot], None]
) -> web.Application:
    """Build the server.

    Args:
        guarded: The guards; the caller closes it.
        token: Needed by every request but /health; empty needs none.
        refresh_s: How often to look for a newer version of the store.
        keep: Keeps what was seen of the store; called in a thread with each newer version, and once more at the end. It
            may raise: the server goes on, and tells.
    """
    meters, tell, bodies, pinned = _Meters(), _Trouble(), _Bodies(), _Pinned(guarded, keep)
    follower = _Follower(guarded, pinned, meters, refresh_s, tell)
    failed = {reason: _Trouble(CALM_S) for reason in FAILURES}
    parsers = ThreadPoolExecutor(PARSERS, "memaudit-parse")
    waiting = 0

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the token, turn errors into statuses, count them."""
        try:
            if request.path != "/health" and not _authorised(request, token):
                raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})
            if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
                raise web.HTTPUnsupportedMediaType(
                    headers={"Accept-Encoding": "identity"}, reason="expected no Content-Encoding"
                )
            return await handler(request)
        except web.HTTPException as error:
            meters.errors.labels(str(error.status)).inc()
            return web.json_response({"error": error.reason}, status=error.status, headers=_challenge(error))
        except UsageError as error:
            meters.errors.labels("400").inc()
            return web.json_response({"error": str(error)[:600]}, status=400)
        except AuditError as error:
            meters.errors.labels("503").inc()
            tell(str(error))
            return web.json_response({"error": "cannot be judged or logged now: ask the operator"}, status=503)

    def made(decision: Decision) -> None:
        """Count a decision as soon as it is made, since its request may fail yet, and tell of a failure."""
        meters.decisions.labels(str(decision.allowed).lower(), decision.reason).inc()
        if decision.reason in FAILURES:
            failed[decision.reason](f"a write could not be judged: {decision.reason}: {decision.detail}")

    async def check(request: web.Request) -> web.Response:
        nonlocal waiting
        body = await bodies.read(request)
        if waiting >= MAX_WAITING:
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
        status = "stale" if guarded.trouble or follower.late else "ok"
        return web.json_response({"status": status, "version": guarded.version, "pinned": not pinned.trouble})

    async def metrics(_: web.Request) -> web.Response:
        text = meters.text(guarded, stale=bool(guarded.trouble) or follower.late)
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def follow(_: web.Application) -> AsyncIterator[None]:
        """Look for newer versions while the server runs."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(WORKERS, "memaudit-guard"))
        task = asyncio.create_task(follower.run())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(pinned.keep)
        parsers.shutdown(wait=False)

    log = logging.Logger("memaudit.guard", logging.WARNING)  # noqa: LOG001 - with this server's handler alone
    log.addHandler(_Lines(meters))
    application = web.Application(
        middlewares=[gate], client_max_size=MAX_BODY_BYTES, handler_args={"auto_decompress": False, "logger": log}
    )
    application.router.add_post("/check", check)
    application.router.add_get("/health", health)
    application.router.add_get("/metrics", metrics)
    application.cleanup_ctx.append(follow)
    return application


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


def serve_guard(
    guarded: GuardedStore,
    sockets: Sequence[socket.socket],
    *,
    token: str,
    refresh_s: float,
    keep: Callable[[VerifiedSnapshot], None],
) -> None:
    """Serve until interrupted; arguments as of `guard_application`.

    Raises:
        UsageError: an address was taken by somebody else after all.
    """
    application = guard_application(guarded, token=token, refresh_s=refresh_s, keep=keep)
    if not token:
        print("no token was given: every process on this machine may ask", file=sys.stderr)  # noqa: T201
    try:
        web.run_app(application, sock=sockets, access_log=None, print=_say)
    except OSError as error:
        raise UsageError(f"cannot listen: {error.strerror or error}") from None


async def _judge(guarded: GuardedStore, entries: Sequence[Entry], made: Callable[[Decision], None]) -> list[Decision]:
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


def _shown(decision: Decision) -> Decision:
    """Return what a client may see: why a model failed names files and servers, and is the operator's."""
    return replace(decision, detail="") if decision.reason in FAILURES else decision


class _Follower:
    """Looks for newer versions of the store while the server runs; no error ends it."""

    def __init__(
        self, guarded: GuardedStore, pinned: _Pinned, meters: _Meters, refresh_s: float, tell: _Trouble
    ) -> None:
        self._guarded, self._pinned, self._meters = guarded, pinned, meters
        self._refresh_s, self._tell = refresh_s, tell
        self._looked_s = time.monotonic()

    @property
    def late(self) -> bool:
        """No look has ended for longer than one may take: it hangs, or the task is gone."""
        return time.monotonic() - self._looked_s > self._refresh_s + LOOK_S

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._refresh_s)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - told; where it stays so, `late` says it too
                self._tell(f"the store was not looked at: {type(error).__name__}: {error}")
            else:
                self._looked_s = time.monotonic()

    async def _look(self) -> None:
        changed = False
        try:
            changed = await asyncio.to_thread(self._guarded.refresh)
            if changed:
                self._meters.reloads.labels("true").inc()
        except Exception:  # noqa: BLE001 - the old set stays in force, and `trouble` has the reason
            self._meters.reloads.labels("false").inc()
        if changed or self._pinned.trouble:
            await asyncio.to_thread(self._pinned.keep)
        if self._guarded.trouble:
            self._tell(f"the newest version of the store is not in force: {self._guarded.trouble}")


class _Trouble:
    """Tells the operator, on standard error and once for each cause: who asks the guard need not know its files.

    Args:
        calm_s: Least time between two lines.
    """

    def __init__(self, calm_s: float = 0.0) -> None:
        self._calm_s, self._told, self._told_s = calm_s, "", -math.inf

    def __call__(self, line: str) -> None:
        """Print one line, unless it was the last one, or comes too soon after it."""
        now_s = time.monotonic()
        if line != self._told and now_s - self._told_s >= self._calm_s:
            self._told, self._told_s = line, now_s
            _print(line)


class _Lines(logging.Handler):
    """Takes what aiohttp logs, and tells it in one line, none twice: whoever connects can cause it, without a token.

    The line is the kind of error and its place in the code: so there are few, with no word of a client's in them.
    """

    def __init__(self, meters: _Meters) -> None:
        super().__init__()
        self._meters = meters
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Tell, and count a request that never came to the application."""
        error = record.exc_info[1] if record.exc_info else None
        if record.msg == "Error handling request from %s":
            status = error.code if isinstance(error, HttpProcessingError) else 500
            self._meters.errors.labels(str(status)).inc()
        line = f"a request went wrong: {str(record.msg) if error is None else _kind(error)}"
        if line not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(line)
            _print(line)


def _kind(error: BaseException) -> str:
    """Return the kind of an error and where it was raised."""
    places = [f" in {Path(frame.f_code.co_filename).name}:{line}" for frame, line in walk_tb(error.__traceback__)]
    return f"{type(error).__name__}{places[-1] if places else ''}"


def _print(line: str) -> None:
    """Print on standard error if it takes it: a full disk or a reader that left must end nothing."""
    with suppress(OSError, ValueError):
        print(f"memaudit: {as_line(line, 600)}", file=sys.stderr, flush=True)  # noqa: T201


class _Pinned:
    """Keeps the version in force as seen: a store that is rolled back while the server is down must be refused."""

    def __init__(self, guarded: GuardedStore, keep: Callable[[VerifiedSnapshot], None]) -> None:
        self._guarded, self._keep, self._tell = guarded, keep, _Trouble()
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
                self._tell(f"a rollback of the store would go unseen after a restart: {self.trouble}")
            else:
                self.trouble, self._tell = "", _Trouble()


class _Bodies:
    """Reads bodies, so many at once and each in limited time; of too many the one that takes longest makes room."""

    def __init__(self) -> None:
        self._reading: dict[asyncio.Timeout, None] = {}

    async def read(self, request: web.Request) -> bytes:
        """Read one.

        Raises:
            web.HTTPException: it took too long, is too large, or did not come whole.
        """
        limit = asyncio.timeout(BODY_S)
        try:
            async with limit:
                if len(self._reading) >= MAX_READING:
                    self._make_room()
                self._reading[limit] = None
                return await request.read()
        except TimeoutError:
            if limit in self._reading:
                raise web.HTTPRequestTimeout(reason="the body took too long") from None
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"}, reason="too many bodies at once") from None
        except (ConnectionError, web.RequestPayloadError):  # who left gets no answer, and is no trouble of the server's
            raise web.HTTPBadRequest(reason="the body did not come whole") from None
        finally:
            self._reading.pop(limit, None)

    def _make_room(self) -> None:
        longest = next(iter(self._reading))
        del self._reading[longest]
        if not longest.expired():
            longest.reschedule(asyncio.get_running_loop().time())


def parse_writes(body: bytes, content_type: str, *, now_ms: int) -> tuple[list[Entry], bool]:
    """Parse a request's writes; True where it is a list of them.

    Raises:
        UsageError: a write breaks a rule, or there is none.
        web.HTTPException: another content type, or too many lines.
    """
    defaults: dict[str, object] = {"principal": UNNAMED, "source": "agent", "created_at_ms": now_ms}
    if content_type == "application/json":
        return list(parse_entries([body], "request", defaults)) or _nothing(), False
    if content_type != "application/x-ndjson":
        raise web.HTTPUnsupportedMediaType(reason="expected application/json or application/x-ndjson")
    lines = body.split(b"\n")
    if len(lines) > MAX_LINES + 1:
        raise web.HTTPRequestEntityTooLarge(max_size=MAX_LINES, actual_size=len(lines), reason="too many lines")
    return list(parse_entries(lines, "request", defaults)) or _nothing(), True


def _nothing() -> list[Entry]:
    raise UsageError("request: no write in it")


def _authorised(request: web.Request, token: str) -> bool:
    """Compare in constant time, so that a token cannot be guessed letter by letter."""
    if not token:
        return True
    given = request.headers.get("Authorization", "")
    return hmac.compare_digest(given.encode(errors="replace"), f"Bearer {token}".encode())


def _challenge(error: web.HTTPException) -> dict[str, str]:
    return {
        name: error.headers[name]
        for name in ("WWW-Authenticate", "Retry-After", "Allow", "Accept-Encoding")
        if name in error.headers
    }


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - scripts wait for it
