"""One memory, or several, under one detector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.entry import Entry
from memory_audit.scan.detector import ScannedMemory
from memory_audit.scan.detectors import DETECTORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.scan.finding import Finding

DAY_MS = 24 * 3_600_000
NOW_MS = 20_000 * DAY_MS

HOSTILE = (
    "a", "1", " ", "\n", "A1", "a.", "a@", "://", "eyJ", "system:", "\nsystem", "<", "\u200b\u200c", "\U000e0041",
    "\u202e", "аb", "MemAudit ", "\u2014 a ", "4-", "+1 ", "GB82", '{"name": "a", ', "(", "\u0301a", "https://a:",
)  # fmt: skip
"""What a pattern that goes back over a text would stumble on, to be repeated."""


def entry(response: str, **fields: Any) -> Entry:
    given: dict[str, Any] = {
        "tenant": "acme", "entry_id": "m0", "principal": "ana", "source": "user", "request": "", "created_at_ms": 0,
    }  # fmt: skip
    return Entry(**given | {"response": response} | fields)


def found(detector: str, entries: Sequence[Entry], **memory: Any) -> list[Finding]:
    scanned = ScannedMemory(tenant="acme", entries=entries, **{"now_ms": NOW_MS} | memory)
    findings = list(DETECTORS[detector]().scan(scanned, entries))
    assert all(finding.kind in DETECTORS[detector]().kinds for finding in findings)
    return findings


def kinds(detector: str, response: str, **fields: Any) -> set[str]:
    return {finding.kind for finding in found(detector, [entry(response, **fields)])}
