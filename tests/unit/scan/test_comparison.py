"""What two scans beside each other say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memory_audit.scan.comparison import compare
from memory_audit.scan.result import KnownFinding, ScannedTenant, ScanResult
from tests.unit.scan.sample import NOW_MS, known


def scan(*findings: KnownFinding, **changes: Any) -> ScanResult:
    tenants = (ScannedTenant(tenant="acme", memories=9, copies=0, findings=findings),)
    detectors = {"chat-tokens": ""}
    result = ScanResult(
        source="s", snapshot_version=1, snapshot_digest="", scanned_at_ms=NOW_MS, tenants=tenants, detectors=detectors
    )
    return replace(result, **changes)


def keys(findings):
    return [finding.key for finding in findings]


def test_what_is_new_fixed_back_and_of_another_severity():
    before = scan(known(key="a"), known(key="b"), known(key="c"), known("fixed", key="d", fixed_ms=1))
    after = scan(
        known("known", key="a", severity="high"), known("fixed", key="b", fixed_ms=2), known("known", key="c"),
        known("returned", key="d"), known(key="e"), known(key="f", severity="high"), known("returned", key="g"),
    )  # fmt: skip
    seen = compare(before, after)
    assert (keys(seen.new), keys(seen.fixed), keys(seen.returned)) == (["f", "e"], ["b"], ["d", "g"])
    assert [(was, finding.key, finding.severity) for was, finding in seen.changed] == [("medium", "a", "high")]
    assert seen.unseen == ()


def test_two_equal_scans_say_nothing():
    one = scan(known(key="a"), known("accepted", key="b"))
    seen = compare(one, one)
    assert (seen.new, seen.returned, seen.fixed, seen.changed, seen.unseen) == ((), (), (), (), ())


def test_what_the_later_scan_did_not_look_for_is_not_fixed():
    before = scan(known(key="a"))
    assert keys(compare(before, scan()).fixed) == ["a"]
    failed = ScannedTenant(tenant="acme", memories=9, copies=0, failure="no room")
    for after in (scan(detectors={}), scan(tenants=()), scan(tenants=(failed,))):
        seen = compare(before, after)
        assert (keys(seen.fixed), keys(seen.unseen)) == ([], ["a"])
