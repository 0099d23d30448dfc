"""The guard's decisions as JSON lines: what was refused, why, and by which tombstone. No text of any memory is in it.

    {"ts_ms": 1760000000000, "tenant": "acme", "entry_id": "m-9", "principal": "bot", "allowed": false,
     "reason": "behaviour restated", "labels": null, "similarity": 0.81, "restated_nats": 4.2, "hazard_nats": null,
     "fused_nats": null, "content_sha256": "9c…", "with_earlier": [], "detail": "",
     "tombstone": {"tenant": "acme", "entry_id": "m-3", "removed_index": 2, "run_id": "r-1"}}

Refusals and failures are always written; writes that were let through only on demand. Ids and details are cut to a
bound. A full file becomes FILE.1, and the one before it goes: the log cannot fill a disk, and keeps the newest lines,
140,000 of usual length. What is written goes to the file of that name: where somebody else put it aside or removed
it, a new one is made. Several guards may share a file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import threading
from typing import TYPE_CHECKING

from memory_audit.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memory_audit.entry import Entry
    from memory_audit.guard.decide.guard_decision import GuardDecision

__all__ = ["DecisionLog", "as_record"]

MAX_DETAIL_CHARS = 300
MAX_LOG_BYTES = 64 << 20


class DecisionLog:
    """Appends decisions to a file. Thread-safe; give its `write` to a guard as `on_decision`.

    Args:
        path: The file; made if absent.
        clock_ms: Now, in Unix milliseconds.
        allowed_too: Also write what was let through.
        max_bytes: Size at which the file is put aside.

    Raises:
        UsageError: the file cannot be opened.
    """

    def __init__(
        self, path: Path, *, clock_ms: Callable[[], int], allowed_too: bool = False, max_bytes: int = MAX_LOG_BYTES
    ) -> None:
        self._path, self._clock_ms, self._allowed_too, self._max_bytes = path, clock_ms, allowed_too, max_bytes
        self._lock = threading.Lock()
        self._file: int | None = None
        self._torn = False  # half a line is at the end
        try:
            self._opened()
        except OSError as error:
            raise UsageError(f"{path}: cannot open the decision log ({error.strerror})") from None

    def write(self, entry: Entry, decision: GuardDecision) -> None:
        """Append one decision.

        Raises:
            IncompleteError: the disk is full or refuses: a guard that cannot account for itself must not go on.
        """
        if decision.allowed and not self._allowed_too and not decision.failed:
            return
        line = json.dumps(as_record(entry, decision, self._clock_ms()), sort_keys=True).encode() + b"\n"
        with self._lock:
            try:
                self._append(line)
            except OSError as error:
                raise IncompleteError(f"{self._path}: cannot write the decision log ({error.strerror})") from None

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            self._close()

    def _append(self, line: bytes) -> None:
        file = self._opened()
        size = os.fstat(file).st_size  # as it is now: others may write and cut it too
        if size and size + self._torn + len(line) > self._max_bytes:
            self._put_aside(file)
            file = self._opened()
            if os.fstat(file).st_size > 2 * self._max_bytes:
                raise OSError(errno.EFBIG, "it is full, and another process keeps it from being put aside")
        rest = b"\n" + line if self._torn else line
        while rest:  # a disk that is nearly full takes a part
            rest = rest[os.write(file, rest) :]
            self._torn = bool(rest)

    def _opened(self) -> int:
        """Return the file of that name, which need not be the one that was open: a log rotator moves it."""
        if self._file is None or not self._in_place(self._file):
            fresh = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            self._close()
            self._file, self._torn = fresh, False
        return self._file

    def _in_place(self, file: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(file))
        except FileNotFoundError:
            return False

    def _put_aside(self, file: int) -> None:
        """Rename the full file, unless another writer does: a second renaming would lose a whole file.

        Whoever may read the file can lock it: the caller bounds what is written then.
        """
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            if self._in_place(file):
                with contextlib.suppress(FileNotFoundError):  # a log rotator was faster
                    self._path.replace(self._path.with_name(self._path.name + ".1"))
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def as_record(entry: Entry, decision: GuardDecision, now_ms: int | None = None) -> dict[str, object]:
    """Return a decision as JSON values, for the log, the command line and the server."""
    stone = None if decision.tombstone is None else decision.tombstone.tombstone
    return {
        **({} if now_ms is None else {"ts_ms": now_ms}),
        "tenant": entry.tenant,
        "entry_id": entry.entry_id,
        "principal": entry.principal,
        "allowed": decision.allowed,
        "reason": decision.reason,
        "labels": None if decision.labels is None else sorted(decision.labels),
        "similarity": _rounded(decision.similarity),
        "restated_nats": _rounded(decision.restated_nats),
        "hazard_nats": _rounded(decision.hazard_nats),
        "fused_nats": _rounded(decision.fused_nats),
        "content_sha256": hashlib.sha256(entry.response.encode(errors="replace")).hexdigest(),
        "tombstone": None if stone is None else {
            "tenant": stone.tenant if stone.tenant == entry.tenant else None,  # operator-wide: no tenant sees another's
            "entry_id": stone.entry_id if stone.tenant == entry.tenant else None,
            "removed_index": stone.removed_index, "run_id": stone.run_id,
        },
        "with_earlier": list(decision.with_earlier),
        "detail": decision.detail[:MAX_DETAIL_CHARS],
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
