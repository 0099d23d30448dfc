"""Small memories for tests of detectors, embedded and compared by the fake models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_audit.consistency.entailment import plan_pairs, weights
from memory_audit.consistency.tenant_graph import TenantGraph
from memory_audit.entry import Entry
from memory_audit.models.fakes import FakeEmbedder, FakeEntailment
from memory_audit.scan.detector import ScannedMemory
from memory_audit.scan.detectors import DETECTORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_audit.scan.finding import Finding

EMBEDDER = FakeEmbedder(1_024)  # few words share a place


def note(entry_id: str, response: str, **changes: Any) -> Entry:
    fields: dict[str, Any] = {
        "tenant": "acme", "entry_id": entry_id, "principal": "bot", "source": "agent", "request": "",
        "response": response, "created_at_ms": 0,
    }  # fmt: skip
    return Entry(**(fields | changes))


def notes(*responses: str) -> list[Entry]:
    return [note(f"m{place}", response, created_at_ms=place) for place, response in enumerate(responses)]


def graph_of(entries: Sequence[Entry], *, compared: bool = True, neighbours: int = 10) -> TenantGraph:
    graph = TenantGraph(entries, neighbours=neighbours, whole=True)
    graph.embed(EMBEDDER.embed(graph.texts), EMBEDDER.embed([entry.response for entry in entries]))
    if compared and entries:
        graph.observe(weights(FakeEntailment().probabilities(plan_pairs(graph.plan(())))))
    return graph


def scanned(name: str, entries: Sequence[Entry], **known: Any) -> list[Finding]:
    """Return what a detector finds, with its promises kept: kinds it has, few names, no text in messages."""
    detector = DETECTORS[name]()
    findings = list(detector.scan(ScannedMemory(tenant="acme", entries=entries, now_ms=0, **known), entries))
    assert detector.name == name
    assert len({finding.fingerprint for finding in findings}) == len(findings)
    for finding in findings:
        assert (finding.detector, finding.tenant) == (name, "acme")
        assert finding.kind in detector.kinds
        assert 0 < len(finding.entry_ids) <= 50
        assert "\n" not in finding.message
        assert all(len(item.value) <= 300 for item in finding.evidence)
    return findings


def fingerprints(findings: Sequence[Finding]) -> set[str]:
    return {finding.fingerprint for finding in findings}
