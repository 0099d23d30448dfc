"""A scan's findings as OCSF 1.5 events of the class Detection Finding (2004), JSON lines for a SIEM.

A new or returned finding is created, a known or accepted one updated, a fixed one closed. `finding_info.uid` is the
fingerprint, `metadata.tenant_uid` the tenant. No memory text is in the file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memory_audit.report.untrusted import as_line
from memory_audit.scan.forms.words import described, fixed_now, live, memories

if TYPE_CHECKING:
    from memory_audit.scan.result import KnownFinding, ScanResult

__all__ = ["to_ocsf"]

VERSION = "1.5.0"
CATEGORY, CLASS = 2, 2004
SEVERITIES = {"info": (1, "Informational"), "low": (2, "Low"), "medium": (3, "Medium"), "high": (4, "High")}
ACTIVITIES = {
    "new": (1, "Create"), "returned": (1, "Create"), "known": (2, "Update"), "accepted": (2, "Update"),
    "fixed": (3, "Close"),
}  # fmt: skip
STATUSES = {
    "new": (1, "New"), "returned": (1, "New"), "known": (1, "New"), "accepted": (3, "Suppressed"),
    "fixed": (4, "Resolved"),
}  # fmt: skip
"""`New` says that nobody has reviewed it."""

RULE = 1
"""Type of an analytic."""


def to_ocsf(result: ScanResult, tool_version: str) -> str:
    """Return an event a line, ASCII: of findings that are there, the worst first, and those that were fixed."""
    found = (*live(result), *fixed_now(result))
    return "".join(f"{json.dumps(_event(result, known, tool_version))}\n" for known in found)


def _event(result: ScanResult, known: KnownFinding, tool_version: str) -> dict[str, Any]:
    finding, kind = known.finding, described(result, known.finding.kind)
    (activity_id, activity), (status_id, status) = ACTIVITIES[known.state], STATUSES[known.state]
    severity_id, severity = SEVERITIES[finding.severity]
    message, tenant, now = as_line(finding.message, 600), as_line(finding.tenant), result.scanned_at_ms
    return {
        "activity_id": activity_id,
        "activity_name": activity,
        "category_uid": CATEGORY,
        "category_name": "Findings",
        "class_uid": CLASS,
        "class_name": "Detection Finding",
        "type_uid": CLASS * 100 + activity_id,
        "type_name": f"Detection Finding: {activity}",
        "time": now,
        "severity_id": severity_id,
        "severity": severity,
        "status_id": status_id,
        "status": status,
        "is_alert": known.state in {"new", "returned"},
        "message": message,
        "count": max(memories(finding), 1),
        "metadata": {
            "version": VERSION,
            "product": {"name": "MemAudit", "vendor_name": "MemAudit", "version": tool_version},
            "tenant_uid": tenant,
        },
        "finding_info": {
            "uid": finding.fingerprint,
            "title": kind.title,
            "desc": message,
            "types": [finding.kind],
            "first_seen_time": known.first_seen_ms,
            **({} if known.state == "fixed" else {"last_seen_time": now}),
            "analytic": {"type_id": RULE, "type": "Rule", "uid": finding.kind, "name": finding.detector},
            "attacks": [{"technique": {"uid": taxon}} for taxon in kind.taxonomy if taxon.startswith("AML.")],
        },
        "resources": [
            {"uid": as_line(name), "type": "Agent memory", "namespace": tenant, "name": as_line(result.source)}
            for name in finding.entry_ids
        ],
        "remediation": {"desc": kind.advice},
        "unmapped": {"state": known.state, "taxonomy": list(kind.taxonomy)},
    }
