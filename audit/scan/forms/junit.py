"""A scan's findings as JUnit XML, for the test tab of a pipeline.

A tenant is a suite. A finding is a test that failed, an accepted one is skipped, a detector that found nothing is a
test that passed, and a tenant that could not be scanned has an error. No memory text is in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from memory_audit.report.untrusted import as_line
from memory_audit.scan.forms.words import described, named, until

if TYPE_CHECKING:
    from memory_audit.scan.result import KnownFinding, ScannedTenant, ScanResult

__all__ = ["to_junit"]


def to_junit(result: ScanResult) -> str:
    """Return the XML; every id in it is safe on a line."""
    root = ET.Element("testsuites", name="memaudit scan")
    for tenant in result.tenants:
        _suite(root, result, tenant)
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, result: ScanResult, tenant: ScannedTenant) -> None:
    suite = ET.SubElement(root, "testsuite", name=as_line(tenant.tenant))
    found = [known for known in tenant.findings if known.state != "fixed"]
    if tenant.failure is not None:
        case = ET.SubElement(suite, "testcase", classname="memaudit", name="scan")
        ET.SubElement(case, "error", type="failure", message=as_line(tenant.failure, 300))
    else:
        for name in sorted(result.detectors.keys() - {known.finding.detector for known in found}):
            ET.SubElement(suite, "testcase", classname=name, name="nothing found")
    for known in found:
        _case(suite, result, known)
    for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped"), ("testcase", "tests")):
        suite.set(count, str(len(list(suite.iter(tag)))))


def _case(suite: ET.Element, result: ScanResult, known: KnownFinding) -> None:
    finding, kind = known.finding, described(result, known.finding.kind)
    name = f"{kind.title}: {named(finding)} [{finding.fingerprint[:16]}]"
    case = ET.SubElement(suite, "testcase", classname=finding.kind, name=name)
    if (acceptance := known.acceptance) is not None:
        last = f", until {day}" if (day := until(acceptance)) else ""
        why = f"accepted by {as_line(acceptance.by)}{last}: {as_line(acceptance.reason, 300)}"
        ET.SubElement(case, "skipped", message=why)
        return
    words = as_line(finding.message, 600)
    failure = ET.SubElement(
        case, "failure", type=finding.severity, message=f"{finding.severity}, {known.state}: {words}"
    )
    failure.text = f"{words}. {kind.advice}"
