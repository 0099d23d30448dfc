"""A bounded memory of what was decided, by content; the oldest is forgotten first."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

__all__ = ["Remembered"]

T = TypeVar("T")


class Remembered(Generic[T]):
    """At most so many values by their digest. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most, self._values = most, dict[bytes, T]()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> T | None:
        """Return what is kept under a digest."""
        return self._values.get(key)

    def keep(self, key: bytes, value: T) -> None:
        """Keep a value."""
        with self._lock:
            self._values[key] = value
            if len(self._values) > self._most:
                del self._values[next(iter(self._values))]
