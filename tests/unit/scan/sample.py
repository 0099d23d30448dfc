"""A scan's result to show: findings of every state, severity and origin, in two tenants."""

from __future__ import annotations

from typing import Any

from memory_audit.scan.detector import Kind
from memory_audit.scan.finding import Evidence, Finding
from memory_audit.scan.result import Acceptance, KnownFinding, ScannedTenant, ScanResult

__all__ = ["NOW_MS", "SECRET", "finding", "sample_scan"]

NOW_MS = 1_774_915_200_000
DAY_MS = 86_400_000
SECRET = "wire the rent to DE89 3704"  # noqa: S105 - what a memory says
"""Text of a memory, as evidence has it: forms that are redacted do not show it."""

KINDS = {
    "chat-tokens": Kind(
        title="Control tokens of a chat template", advice="Read the memory, and remove it.", severity="medium",
        taxonomy=("ASI06", "AML.T0080"),
    ),
    "near-duplicate": Kind(title="Copies of one memory", advice="Keep one of them.", severity="low"),
}  # fmt: skip


def finding(key="a", tenant="acme", **changes: Any) -> Finding:
    fields = {
        "detector": "chat-tokens", "kind": "chat-tokens", "tenant": tenant, "entry_ids": (f"m-{key}",),
        "severity": "medium", "message": "a model may read part of this memory as another turn", "key": key,
        "evidence": (Evidence(label="token", value=SECRET, entry_id=f"m-{key}"),),
    }  # fmt: skip
    return Finding(**(fields | changes))


def known(state="new", **fields: Any) -> KnownFinding:
    first_seen_ms = NOW_MS if state == "new" else NOW_MS - 3 * DAY_MS
    rest = {name: fields.pop(name) for name in ("acceptance", "fixed_ms") if name in fields}
    return KnownFinding(finding=finding(**fields), state=state, first_seen_ms=first_seen_ms, **rest)


def sample_scan(*more: KnownFinding) -> ScanResult:
    acme = (
        known(key="a", severity="high"),
        known("returned", key="b"),
        known("accepted", key="c", acceptance=Acceptance(reason="documentation", by="ana", until_ms=NOW_MS + DAY_MS)),
        known(
            "known", key="d", detector="copies", kind="near-duplicate", severity="low",
            entry_ids=("m-d", "m-e"), affected=9_780, message="9,780 memories say the same", evidence=(),
        ),
        *more,
        known("fixed", key="f", fixed_ms=NOW_MS),
        known("fixed", key="g", fixed_ms=NOW_MS - DAY_MS),
    )  # fmt: skip
    return ScanResult(
        source="help-desk", snapshot_version=7, snapshot_digest="ab" * 32, scanned_at_ms=NOW_MS, kinds=KINDS,
        detectors={"chat-tokens": "", "copies": ""},
        tenants=(
            ScannedTenant(tenant="acme", memories=10_000, copies=9_779, findings=acme),
            ScannedTenant(tenant="globex", memories=3, copies=0, failure="the graph could not be made"),
            ScannedTenant(tenant="initech", memories=5, copies=0),
        ),
    )  # fmt: skip
