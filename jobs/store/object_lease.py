"""A lease in an object store: of those who want it, on whatever machine, one has it at a time.

    scratch/lease-7.json   {"host": "node-3", "pid": 4711, "command": "nightly", "token": "…"}, or {} once it is done

1. Who wants it looks at the object with the highest number. It is free where that says {}, or was not renewed for
   EXPIRES_S, by the service's own clock; those of the machines do not matter.
2. What is free is taken by creating the next number, if that is absent: of two takers one wins.
3. Its holder writes it again every RENEW_S. No number is used twice, so one who was thought dead renews what nobody
   looks at; `check` tells it.

A holder that is killed frees it after EXPIRES_S.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_audit.errors import AuditError, IncompleteError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_audit.provenance.mirror import Remote

__all__ = ["ObjectLease", "held", "holder"]

RENEW_S = 20.0
EXPIRES_S = 120.0
"""Six renewals: a service that does not answer for a minute ends no night."""

LOOKS_S = 1.0
MAX_BYTES = 4_096
DONE = b"{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLease:
    """A lease that is held."""

    remote: Remote
    kind: str
    number: int

    def check(self) -> None:
        """Make sure that it is still held, before something that cannot be undone.

        Raises:
            IncompleteError: another machine took it, since this one stood still for too long.
        """
        if _newest(self.remote, self.kind)[0] != self.number:
            raise IncompleteError(f"{self.remote.address} was taken over, as this machine stood still: start again")


@contextmanager
def held(remote: Remote, kind: str, command: str, *, wait_s: float) -> Iterator[ObjectLease | None]:
    """Hold a lease; None where others hold it all the time.

    Args:
        remote: Where it lies.
        kind: What it is for: names the objects.
        command: What holds it, told to those who come meanwhile.
        wait_s: How long to wait for others, seconds.
    """
    who = {"host": socket.gethostname(), "pid": os.getpid(), "command": command, "token": secrets.token_hex(8)}
    data = json.dumps(who).encode()
    until = time.monotonic() + wait_s
    remote.check_condition()
    while (lease := _take(remote, kind, data)) is None:
        if time.monotonic() >= until:
            yield None
            return
        time.sleep(LOOKS_S)
    name, done = _name(kind, lease.number), threading.Event()

    def renew() -> None:
        while not done.wait(RENEW_S):
            with suppress(AuditError):  # a service that comes back
                remote.put(name, data)

    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        done.set()
        renewing.join()
        with suppress(AuditError):  # it expires
            remote.put(name, DONE)


def holder(remote: Remote, kind: str) -> bytes:
    """Return what the newest lease says, which others wrote."""
    return remote.get(_name(kind, _newest(remote, kind)[0]), MAX_BYTES) or DONE


def _take(remote: Remote, kind: str, data: bytes) -> ObjectLease | None:
    """Take the lease where it is free; None where others hold it, or were faster."""
    number, changed_ms = _newest(remote, kind)
    if number and remote.get(_name(kind, number), MAX_BYTES) != DONE:
        now_ms = _service_ms(remote)
        if now_ms - changed_ms <= EXPIRES_S * 1_000:
            return None
    if not remote.create(_name(kind, mine := number + 1), data):
        return None
    there = _numbers(remote, kind)
    won = max(there) == mine  # else others took and gave back several meanwhile
    remote.remove(_name(kind, other) for other in there if (other < mine if won else other == mine))
    return ObjectLease(remote=remote, kind=kind, number=mine) if won else None


def _service_ms(remote: Remote) -> int:
    """Return the time that the service gives to what is written now, Unix milliseconds."""
    name = f"scratch/clock-{secrets.token_hex(8)}"
    remote.put(name, b"?")
    now = remote.listing("scratch/")[name].changed_ms
    remote.remove([name])
    return now


def _newest(remote: Remote, kind: str) -> tuple[int, int]:
    """Return number and time of the newest lease; 0 and 0 where there is none."""
    return max(_numbers(remote, kind).items(), default=(0, 0))


def _numbers(remote: Remote, kind: str) -> dict[int, int]:
    """Return the leases there are, by number, to when each was written last, Unix milliseconds."""
    name = re.compile(rf"scratch/{kind}-([1-9][0-9]{{0,8}})\.json", re.ASCII)
    there = remote.listing("scratch/").items()
    return {int(found[1]): stored.changed_ms for path, stored in there if (found := name.fullmatch(path))}


def _name(kind: str, number: int) -> str:
    return f"scratch/{kind}-{number}.json"
