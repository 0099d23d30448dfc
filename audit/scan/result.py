"""What one scan found, as its run folder keeps it."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - the reader looks up field types
from dataclasses import dataclass, field
from typing import Literal

from memory_audit.scan.detector import Kind  # noqa: TC001
from memory_audit.scan.finding import Finding  # noqa: TC001

__all__ = ["Acceptance", "KnownFinding", "ScanResult", "ScannedTenant", "State"]

State = Literal["new", "known", "accepted", "fixed", "returned"]
"""`memory_audit.scan.life` says when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Somebody's word that a finding is no problem."""

    reason: str
    by: str
    until_ms: int | None = None
    """Unix milliseconds; None for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFinding:
    """A finding and its life up to this scan."""

    finding: Finding
    state: State
    first_seen_ms: int
    """Clock of the scan that saw it first."""

    acceptance: Acceptance | None = None
    """Where its state is `accepted`."""

    fixed_ms: int | None = None
    """Clock of the first scan that saw it no more, where its state is `fixed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedTenant:
    """One tenant's part of a scan."""

    tenant: str
    memories: int
    copies: int
    """Memories that say what an earlier one says: exact copies and near-duplicates, but for one of each group."""

    findings: tuple[KnownFinding, ...] = ()
    """Worst first."""

    content: str = ""
    """Digest of all that its findings depend on, the time and other tenants apart."""

    failure: str | None = None
    """One line: why it could not be scanned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """A scan of a store, or of an agent's own memory."""

    source: str
    """Store id, or `SYSTEM:PLACE`."""

    snapshot_version: int | None
    """None of an agent's own memory."""

    snapshot_digest: str | None
    scanned_at_ms: int
    tenants: tuple[ScannedTenant, ...]
    detectors: Mapping[str, str] = field(default_factory=dict)
    """Those that ran, and with which models."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """Of the findings, as their detectors describe them."""
