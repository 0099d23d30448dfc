"""A memory as an agent's own system holds it, or is about to."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from dataclasses import dataclass, field

from memory_audit.entry import Source as Writer  # noqa: TC001 - msgspec reads the annotations

__all__ = ["Record"]


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
