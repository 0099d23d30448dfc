"""Hazard margins in SQLite, so that a text is shown to a model once.

Keys are digests over text, taxonomy, model, method and prompt; no text is stored. Margins are kept and not labels: a
new threshold needs no new question. The file is a cache: it may be deleted, a full one takes no more, and one that is
damaged is an error that says so. Several processes may use it at once.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from typing import TYPE_CHECKING

from memory_audit.errors import IncompleteError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SignatureCache", "parse_margins"]

MAX_FILE_BYTES = 1 << 30
"""Some 500,000 texts. Who writes decides what is read: a guard's cache must not fill the disk."""

BUSY_TIMEOUT_S = 30.0

LARGEST_MARGIN_NATS = 1e6
"""Beyond any log-odds of a model: a row with more, or with no number, was not written here."""


class SignatureCache:
    """Digest to margins. Thread-safe.

    Args:
        path: The database, made if absent; None is one in memory.

    Raises:
        UsageError: the file is not such a database, or cannot be opened.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._path = path
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path or ":memory:", timeout=BUSY_TIMEOUT_S, check_same_thread=False)
            page_bytes = self._database.execute("pragma page_size").fetchone()[0]
            self._database.execute(f"pragma max_page_count = {MAX_FILE_BYTES // page_bytes}")
            with self._database:
                self._database.execute("create table if not exists margins (key text primary key, margins text)")
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"{path}: cannot be used as a signature cache ({error!s:.120}); delete it or name another"
            ) from None

    def get(self, key: str) -> dict[str, float] | None:
        """Return what is known; a row that cannot be read is as none.

        Raises:
            IncompleteError: the file failed.
        """
        row = self._run("select margins from margins where key = ?", key)
        return None if row is None else parse_margins(row[0])

    def put(self, key: str, margins: dict[str, float]) -> None:
        """Keep margins.

        Raises:
            IncompleteError: they are not kept, since the file is full or failed.
        """
        self._run("insert or replace into margins values (?, ?)", key, json.dumps(margins, sort_keys=True))

    def _run(self, statement: str, *values: str) -> tuple[object, ...] | None:
        try:
            with self._lock, self._database:
                row: tuple[object, ...] | None = self._database.execute(statement, values).fetchone()
                return row
        except sqlite3.Error as error:
            raise IncompleteError(f"{self._path}: the signature cache failed ({error!s:.120})") from None

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            self._database.close()


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
