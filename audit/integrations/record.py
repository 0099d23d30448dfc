"""A memory as an agent's own system holds it, or is about to."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from memory_audit.entry import Source as Writer  # noqa: TC001 - msgspec reads the annotations

__all__ = ["Record", "as_text", "id_within", "parts_of", "utc_ms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One memory as a system holds it."""

    record_id: str
    """Unique in the source. Where a system has collections or paths, they are a part of it."""

    text: str
    """What the agent is shown."""

    owner: tuple[tuple[str, str], ...]
    """Whose it is, in the system's own words, the one that isolates most first: (("user_id", "bob"), ("run_id", "7")).
    Empty: the system does not say."""

    writer: tuple[str, str] | None = None
    """Who wrote it, likewise: ("agent_id", "desk"). None: the system does not say."""

    source: Writer = "external"
    created_at_ms: int | None = None
    """Unix milliseconds; None: the system does not say."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    """What else the agent may be shown. None of the system's own bookkeeping: it would make copies look different."""

    spellings: tuple[str, ...] = ()
    """Other forms in which the system keeps the text, such as its lemmas: they are residue, too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", dict(self.metadata))  # plain, for the plan and a fresh process


def as_text(value: Any) -> str:
    """Return a field's value as metadata has it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def utc_ms(moment: Any) -> int | None:
    """Return a time of ISO 8601 in Unix milliseconds, one without a zone in UTC; None where it is none."""
    try:
        found = datetime.fromisoformat(moment)
        return max(0, int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000))
    except (TypeError, ValueError, OverflowError):
        return None


def id_within(place: str, name: str) -> str:
    """Return the id of what has this name in a place, such as a namespace or a collection."""
    return f"{place.replace('%', '%25').replace('/', '%2F')}/{name}"


def parts_of(record_id: str) -> tuple[str, str]:
    """Return place and name: the inverse of `id_within`."""
    place, _, name = record_id.partition("/")
    return place.replace("%2F", "/").replace("%25", "%"), name
