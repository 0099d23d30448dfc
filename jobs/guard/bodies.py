"""Bodies of requests to a guard: read in limited time and number, and parsed into writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from memory_audit.errors import UsageError
from memory_audit.formats.import_jsonl import parse_entries
from memory_audit.guard.decide.write import UNNAMED

if TYPE_CHECKING:
    from memory_audit.entry import Entry

__all__ = ["Bodies", "parse_writes"]

MAX_LINES = 1_000

BODY_S = 10.0
"""Time for a body: the largest comes in it at 3.4 Mbit/s."""


class Bodies:
    """Reads bodies, so many at once and each in limited time; of too many the one that takes longest makes room.

    Args:
        most: At once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._reading: dict[asyncio.Timeout, None] = {}

    async def read(self, request: web.Request) -> bytes:
        """Read one.

        Raises:
            web.HTTPException: it took too long, is too large, or did not come whole.
        """
        limit = asyncio.timeout(BODY_S)
        try:
            async with limit:
                if len(self._reading) >= self._most:
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
