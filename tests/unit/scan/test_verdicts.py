"""Verdicts of audits are findings with the fingerprints of the audit's own SARIF, while their memory is there."""

from __future__ import annotations

import json

import pytest

from memory_audit.scan.forms.formats import FORMATS
from memory_audit.scan.verdicts import Verdicts, as_scan, verdicts_of
from tests.unit.report.hostile import ANSI, BIDI, hostile_result, markup
from tests.unit.report.sample import SHORTCUT, TRIAGE, sample_result
from tests.unit.report.test_lineage import with_lineage
from tests.whole import sarif_of, summed


def prints(text):
    return {
        (item["ruleId"], name, value)
        for item in json.loads(text)["runs"][0]["results"]
        for name, value in item["partialFingerprints"].items()
        if name in {"memauditEntry/v1", "memauditEvent/v1"}
    }


@pytest.mark.parametrize("result", [sample_result(), with_lineage("quarantine")[0]])
def test_they_are_the_findings_of_the_audits_own_sarif(result):
    ours = FORMATS["sarif"](as_scan(*summed(result)), "0.1.0")
    assert prints(ours) == prints(sarif_of(result)) != set()


def test_no_memory_text_query_or_output_is_in_them():
    told = repr(list(verdicts_of(*summed(sample_result()))))
    assert not [text for text in (SHORTCUT, TRIAGE, "Where do I pay invoice", "call 112") if text in told]


def test_hostile_names_are_labelled_in_messages():
    for finding in verdicts_of(*summed(hostile_result([ANSI, BIDI, *markup("x:")]))):
        assert finding.message.isprintable()


def test_a_verdict_stands_while_its_memory_is_there():
    verdicts, tenant = Verdicts([summed(sample_result())]), "northwind-support"
    found = [finding for finding in verdicts_of(*summed(sample_result())) if finding.tenant == tenant]
    names = [finding.entry_ids[0] for finding in found if finding.entry_ids]
    assert tenant in verdicts
    assert "nobody" not in verdicts
    left = verdicts.of(tenant, names[1:])
    assert [name for finding in left for name in finding.entry_ids] == names[1:]


def test_an_event_that_stays_harmful_needs_no_memory():
    found = [finding for finding in verdicts_of(*summed(sample_result())) if finding.kind == "harm-not-cleared"]
    assert Verdicts([summed(sample_result())]).of(found[0].tenant, ()) == found
