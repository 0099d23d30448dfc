"""A scan's findings as SARIF 2.1.0 (OASIS), for code-scanning dashboards.

Rules are the kinds of findings, with OWASP Agentic and MITRE ATLAS as taxonomies. `baselineState` compares with the
scan before: `new` or `unchanged`. What is fixed is not told as `absent`: GitHub, which reads no `baselineState`, would
keep its alert open. Accepted findings are suppressed, with the reason. Content is redacted: no memory text is in the
file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.report.sarif import ENTRY_PRINT, EVENT_PRINT
from memory_audit.report.sarif_log import location, message, sarif_log
from memory_audit.report.untrusted import as_line
from memory_audit.scan.forms.words import described, live, named
from memory_audit.scan.verdicts import AUDIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_audit.scan.detector import Kind
    from memory_audit.scan.result import KnownFinding, ScanResult

__all__ = ["to_sarif"]

LEVELS = {"high": "error", "medium": "warning", "low": "note", "info": "note"}
SCORES = {"high": "8.0", "medium": "5.5", "low": "3.0", "info": "0.1"}
"""`security-severity` of a rule, by which GitHub sorts: within its own bounds of high, medium and low."""

STATES = {"new": "new", "returned": "new", "known": "unchanged", "accepted": "unchanged"}
OWASP, ATLAS = "OWASP Agentic", "MITRE ATLAS"


def to_sarif(result: ScanResult, tool_version: str) -> str:
    """Return the SARIF log as JSON text, the worst of all tenants first; what is accepted comes last."""
    shown = sorted(live(result), key=lambda known: known.state == "accepted")
    kinds = {kind: described(result, kind) for kind in sorted({known.finding.kind for known in shown})}
    places = {kind: place for place, kind in enumerate(kinds)}
    digest = result.snapshot_digest
    return sarif_log(
        [_result(known, places) for known in shown],
        [_rule(name, kind) for name, kind in kinds.items()],
        automation="memaudit-scan",
        store=result.source,
        snapshot=None if result.snapshot_version is None or digest is None else (result.snapshot_version, digest),
        tool_version=tool_version,
        whole="scan.json",
        taxonomies=_taxonomies(kinds),
    )


def _rule(name: str, kind: Kind) -> dict[str, Any]:
    return {
        "id": name,
        "name": "".join(part.capitalize() for part in name.split("-")),
        "shortDescription": {"text": kind.title},
        "fullDescription": {"text": kind.title},
        "help": {"text": kind.advice},
        "defaultConfiguration": {"level": LEVELS[kind.severity]},
        "properties": {"tags": ["security", *kind.taxonomy], "security-severity": SCORES[kind.severity]},
        "relationships": [
            {"target": {"id": taxon, "toolComponent": {"name": _taxonomy(taxon)}}, "kinds": ["relevant"]}
            for taxon in kind.taxonomy
        ],
    }


def _taxonomies(kinds: Mapping[str, Kind]) -> list[dict[str, Any]]:
    taxa = sorted({taxon for kind in kinds.values() for taxon in kind.taxonomy})
    return [
        {"name": name, "taxa": [{"id": taxon} for taxon in taxa if _taxonomy(taxon) == name]}
        for name in (OWASP, ATLAS)
        if any(_taxonomy(taxon) == name for taxon in taxa)
    ]


def _taxonomy(taxon: str) -> str:
    return ATLAS if taxon.startswith("AML.") else OWASP


def _result(known: KnownFinding, places: Mapping[str, int]) -> dict[str, Any]:
    finding = known.finding
    prints = {"memauditFinding/v1": finding.fingerprint, "primaryLocationLineHash": f"{finding.fingerprint[:16]}:1"}
    if finding.detector == AUDIT:
        prints[ENTRY_PRINT if finding.entry_ids else EVENT_PRINT] = finding.key
    suppressions = []
    if (acceptance := known.acceptance) is not None:
        why = f"{as_line(acceptance.reason, 300)} ({as_line(acceptance.by)})"
        suppressions = [{"kind": "external", "status": "accepted", "justification": why}]
    return {
        "ruleId": finding.kind,
        "ruleIndex": places[finding.kind],
        "level": LEVELS[finding.severity],
        "message": message(f"{named(finding)}: {as_line(finding.message, 600)}."),
        "locations": [location("stores", finding.tenant, *finding.entry_ids[:1])],
        "partialFingerprints": prints,
        "baselineState": STATES[known.state],
        "suppressions": suppressions,
    }
