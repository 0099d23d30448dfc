"""Findings of a scan: what was seen, in which memories, how bad it is, and what to do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_audit.entry import Entry

__all__ = ["SEVERITIES", "Evidence", "Finding", "Severity", "content_digest", "finding_about", "shown_text"]

Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One thing that a detector saw."""

    label: str
    """The detector's word for it, such as `contradicts` or `cosine`."""

    value: str
    """A number, or an excerpt of a memory's text: untrusted, and bounded by whoever shows it."""

    entry_id: str | None = None
    """Whose text it is; None where it is none's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to look at."""

    detector: str
    """`Detector.name`."""

    kind: str
    """One of `Detector.kinds`."""

    tenant: str
    entry_ids: tuple[str, ...]
    """Affected memories, the one to look at first in front; of a group of copies the one that is kept."""

    severity: Severity
    message: str
    """One line in this project's words: no memory's text is in it."""

    evidence: tuple[Evidence, ...] = ()
    key: str
    """What makes it the same finding in another scan: digests of contents, never row numbers, scores, or how many
    other memories there are. `content_digest` of the first memory, for most detectors."""

    affected: int = 0
    """Memories that are affected, where `entry_ids` does not name them all; 0 where it does."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of tenant, kind and key, in hexadecimal: stays through a new import and edits of other memories."""
        parts = (self.tenant, self.kind, self.key)
        return hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def content_digest(entry: Entry) -> str:
    """SHA-256 of what an agent reads of a memory, in hexadecimal."""
    request, response, metadata = entry.shown
    parts = (request, response, *(f"{name}={value}" for name, value in sorted(metadata)))
    return hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def finding_about(  # noqa: PLR0913 - a finding's parts
    entry: Entry,
    *,
    detector: str,
    kind: str,
    severity: Severity,
    message: str,
    evidence: Iterable[tuple[str, str]] = (),
) -> Finding:
    """Return a finding of one memory that depends on its content alone; evidence is labels with values."""
    return Finding(
        detector=detector, kind=kind, tenant=entry.tenant, entry_ids=(entry.entry_id,), severity=severity,
        message=message, key=content_digest(entry),
        evidence=tuple(Evidence(label=label, value=value, entry_id=entry.entry_id) for label, value in evidence),
    )  # fmt: skip


def shown_text(entry: Entry) -> str:
    """Return all that an agent reads of a memory: request, response, and metadata as `key: value`, on lines apart."""
    return "\n".join((entry.request, entry.response, *(f"{key}: {value}" for key, value in entry.metadata.items())))
