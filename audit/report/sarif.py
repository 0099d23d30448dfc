"""An audit's findings as SARIF 2.1.0 (OASIS), for code-scanning dashboards.

One run holds all tenants. Rules with stable ids: `poisoned-memory` (an entry to remove), `harm-not-cleared` (an
event that stays harmful) and, where there is one, `quarantined-memory` (an entry derived from a removed one that stays
for now). Where lineage is known, the property bag of an entry's finding has its trust label and derivation path.
Fingerprints are SHA-256 over tenant, id and content hash, so a finding keeps its identity between runs. Content is
redacted: no memory text, query or output is in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_audit.report.sarif_log import digest, location, message, sarif_log
from memory_audit.report.untrusted import as_line
from memory_audit.report.views import tenant_view
from memory_audit.result import bounded_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.report.views import ReadTenant, Removed
    from memory_audit.result import (
        AuditResult,
        DescendantFinding,
        EntryText,
        EventFinding,
        LineageStep,
        TenantSummary,
        TrustLabel,
    )

__all__ = ["ENTRY_PRINT", "EVENT_PRINT", "entry_print", "event_print", "to_sarif"]

ENTRY_PRINT, EVENT_PRINT = "memauditEntry/v1", "memauditEvent/v1"
"""Names of the fingerprints of a memory and of an event."""

_RULES = (
    {
        "id": "poisoned-memory",
        "name": "PoisonedMemory",
        "shortDescription": {"text": "A memory entry that the audit would remove"},
        "fullDescription": {
            "text": "The entry is in the set whose removal was tested on the harmful events. The finding says why: the "
            "evidence against it, what it derives from, or its place in a ranking that was told how many to remove."
        },
        "defaultConfiguration": {"level": "error"},
    },
    {
        "id": "harm-not-cleared",
        "name": "HarmNotCleared",
        "shortDescription": {"text": "A harmful event stays harmful after the removal"},
        "fullDescription": {"text": "The event was replayed without the removed set, and the harm is still there."},
        "defaultConfiguration": {"level": "warning"},
    },
)

_QUARANTINE_RULE = {
    "id": "quarantined-memory",
    "name": "QuarantinedMemory",
    "shortDescription": {"text": "A memory entry derives from a removed one and stays for now"},
    "fullDescription": {
        "text": "By its derivation edges this entry draws on removed ones. A purge removes it only if told to."
    },
    "defaultConfiguration": {"level": "note"},
}


def to_sarif(result: AuditResult, read: ReadTenant, tool_version: str) -> str:
    """Return the SARIF log as JSON text; a notification counts the findings beyond MAX_RESULTS.

    Events that stay harmful come first, as they are few and the worst; then the entries, the most suspicious first.
    """
    entries: list[tuple[str, Removed]] = []
    events: list[dict[str, object]] = []
    held: list[dict[str, object]] = []
    for summary in filter(_is_of_interest, result.tenants):
        view, tenant = tenant_view(summary, read), summary.tenant
        entries += ((tenant, memory) for memory in view.removed)
        events += (_event_result(tenant, event) for event in view.tenant.events if event.verdict == "not cleared")
        held += (
            _quarantine_result(tenant, item, view.texts.get(item.entry_id))
            for item in view.staying
            if item.proposal == "quarantine"
        )
    entries.sort(key=lambda row: (row[1].score.rank, row[0], row[1].score.entry_id))
    results = [*events, *(_entry_result(tenant, memory) for tenant, memory in entries), *held]
    rules = [*_RULES, _QUARANTINE_RULE] if held else list(_RULES)
    return sarif_log(
        results,
        rules,
        automation="memaudit",
        store=result.store,
        snapshot=(result.snapshot_version, result.snapshot_digest),
        tool_version=tool_version,
        whole="result.json",
    )


def _is_of_interest(summary: TenantSummary) -> bool:
    removal = summary.removal
    return bool(removal.removed or removal.quarantined or summary.tally.verdicts.get("not cleared"))


def _entry_result(tenant: str, memory: Removed) -> dict[str, object]:
    score = memory.score
    cmis = "unknown" if score.cmis is None else f"{score.cmis:.4g}"
    cas = "unknown" if score.cas is None else f"{score.cas:.4g}"
    words = (
        f"Memory {as_line(score.entry_id)} of tenant {as_line(tenant)} is to be removed: "
        f"rank {score.rank}, score (DS) {score.ds:.4f}, influence (CMIS) {cmis}, inconsistency (CAS) {cas}. "
        f"Why: {as_line(memory.reason, 300) or 'not recorded'}. Its text is redacted."
    )
    return {
        "ruleId": "poisoned-memory",
        "ruleIndex": 0,
        "level": "error",
        "rank": round(100 * min(max(score.ds, 0.0), 1.0), 4),
        **_about_entry(tenant, score.entry_id, memory.text, words),
        **({} if memory.trust is None else _lineage(memory.trust, memory.path)),
    }


def _quarantine_result(tenant: str, item: DescendantFinding, text: EntryText | None) -> dict[str, object]:
    words = (
        f"Memory {as_line(item.entry_id)} of tenant {as_line(tenant)} is proposed for quarantine: "
        f"{as_line(item.reason, 300)}. Its text is redacted."
    )
    return {
        "ruleId": "quarantined-memory",
        "ruleIndex": len(_RULES),
        "level": "note",
        **_about_entry(tenant, item.entry_id, text, words),
        **_lineage(item.path[-1].trust, item.path),
    }


def _about_entry(tenant: str, entry_id: str, text: EntryText | None, words: str) -> dict[str, object]:
    return {
        "message": message(words),
        "locations": [location("stores", tenant, entry_id)],
        "partialFingerprints": {ENTRY_PRINT: entry_print(tenant, entry_id, text)},
    }


def entry_print(tenant: str, entry_id: str, text: EntryText | None) -> str:
    """Return the fingerprint of a memory that an audit told of."""
    return digest(tenant, entry_id, digest(*(("", "") if text is None else (text.request, text.response))))


def event_print(tenant: str, event_id: str) -> str:
    """Return the fingerprint of an event."""
    return digest(tenant, event_id)


def _lineage(trust: TrustLabel, path: Sequence[LineageStep]) -> dict[str, object]:
    return {
        "properties": {
            "trustLabel": trust,
            "derivationPath": [as_line(step.entry_id) for step in bounded_path(path)],
        }
    }


def _event_result(tenant: str, event: EventFinding) -> dict[str, object]:
    return {
        "ruleId": "harm-not-cleared",
        "ruleIndex": 1,
        "level": "warning",
        "message": message(f"Event {as_line(event.event_id)} of tenant {as_line(tenant)} stays harmful after removal."),
        "locations": [location("events", tenant, event.event_id)],
        "partialFingerprints": {EVENT_PRINT: event_print(tenant, event.event_id)},
    }
