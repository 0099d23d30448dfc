"""Hazard margins on disk and in memory, so that a text is shown to a model once.

Keys are digests over text, taxonomy, model, method and prompt; no text is stored. Margins are kept and not labels: a
new threshold needs no new question. The file is a cache: it may be deleted, a full one takes no more, and one that is
damaged is an error that says so. Several processes may use it at once.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from memory_audit.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SignatureCache", "parse_margins"]

KEPT_IN_MEMORY = 65_536

MAX_FILE_BYTES = 1 << 30
"""Some 500,000 texts. Who writes decides what is read: a guard's cache must not fill the disk."""

BUSY_TIMEOUT_S = 30.0

LARGEST_MARGIN_NATS = 1e6
"""Beyond any log-odds of a model: a row with more, or with no number, was not written here."""


class SignatureCache:
    """Digest to margins. Thread-safe.

    Args:
        path: The database, made if absent; None keeps to memory.

    Raises:
        UsageError: the file is not such a database, or cannot be opened.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._memory: OrderedDict[str, dict[str, float]] = OrderedDict()
        self._path = path
        self._database: sqlite3.Connection | None = None
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
            page_bytes = self._database.execute("pragma page_size").fetchone()[0]
            self._database.execute(f"pragma max_page_count = {MAX_FILE_BYTES // page_bytes}")
            with self._database:
                self._database.execute("create table if not exists margins (key text primary key, margins text)")
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"{path}: cannot be used as a signature cache ({error!s:.120}); delete it or name another"
            ) from None

    def get(self, key: str) -> dict[str, float] | None:
        """Return what is known; a row that cannot be read is as none."""
        with self._lock:
            found = self._memory.get(key)
            if found is not None:
                self._memory.move_to_end(key)
                return dict(found)
            if self._database is None:
                return None
            try:
                row = self._database.execute("select margins from margins where key = ?", (key,)).fetchone()
            except sqlite3.Error as error:
                raise IncompleteError(f"{self._path}: the signature cache failed ({error!s:.120})") from None
        margins = None if row is None else parse_margins(row[0])
        if margins is not None:
            with self._lock:
                self._remember(key, margins)
        return margins

    def put(self, key: str, margins: dict[str, float]) -> None:
        """Keep margins.

        Raises:
            IncompleteError: they are kept in memory alone, since the file is full or failed.
        """
        with self._lock:
            self._remember(key, dict(margins))
            if self._database is None:
                return
            try:
                with self._database:
                    text = json.dumps(margins, sort_keys=True)
                    self._database.execute("insert or replace into margins values (?, ?)", (key, text))
            except sqlite3.Error as error:
                raise IncompleteError(f"{self._path}: the signature cache failed ({error!s:.120})") from None

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _remember(self, key: str, margins: dict[str, float]) -> None:
        self._memory[key] = margins
        if len(self._memory) > KEPT_IN_MEMORY:
            self._memory.popitem(last=False)


def parse_margins(text: object) -> dict[str, float] | None:
    """Return the margins that a row of the database holds; None where it does not hold any."""
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    good = all(isinstance(item, float | int) and abs(item) <= LARGEST_MARGIN_NATS for item in value.values())
    return {str(name): float(item) for name, item in value.items()} if good else None
