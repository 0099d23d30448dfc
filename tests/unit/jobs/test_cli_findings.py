"""`memaudit diff`, `accept` and `report` on the runs of scans and audits."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from memory_audit.scan.acceptances import ACCEPTANCES_FILE, read_acceptances
from memory_audit.scan.forms.json import to_json
from memory_audit.scan.life import track
from tests.unit.jobs.test_cli import AUDIT, desk, one_line, store  # noqa: F401 - fixtures
from tests.unit.scan.sample import NOW_MS, SECRET, finding, known, sample_scan

DAY_MS = 86_400_000
PRINT = finding("a").fingerprint


@pytest.fixture
def scans(folder):
    """Two nights of one store: the first finding was fixed, another is new, and one is worse than it was."""
    first = sample_scan()
    acme = first.tenants[0]
    second = track(
        [finding("b", severity="high"), finding("h"), acme.findings[3].finding],
        acme.findings,
        now_ms=NOW_MS + DAY_MS,
        ran=first.detectors,
        accepted=read_acceptances(b"", "none"),
    )
    later = replace(first, scanned_at_ms=NOW_MS + DAY_MS, tenants=(replace(acme, findings=second), *first.tenants[1:]))
    for name, result in (("scan-1", first), ("scan-2", later)):
        (folder / name).mkdir()
        (folder / name / "scan.json").write_text(to_json(result), encoding="ascii")
    return folder


def changes(run, before, after):
    code, out, _ = run("diff", before, after, "--json")
    told = json.loads(out)
    assert code == 0
    return {name: [item["key"] for item in told[name]] for name in ("new", "returned", "fixed", "changed", "unseen")}


def test_diff_of_two_scans(scans, run):
    told = changes(run, "scan-1", "scan-2")
    assert told == {"new": ["h"], "returned": [], "fixed": ["a", "c"], "changed": ["b"], "unseen": []}
    code, out, _ = run("diff", "scan-1", "scan-2")
    assert code == 0
    assert "medium → high" in out
    assert PRINT[:16] in out
    assert SECRET not in out + run("diff", "scan-1", "scan-2", "--json")[1]
    assert "no difference" in run("diff", "scan-1", "scan-1")[1]


def test_diff_of_two_audits(store, desk, run):  # noqa: F811
    """The purge takes the poison out, so a later audit finds none of it."""
    assert run(*AUDIT)[0] == 0
    shutil.copytree(desk / "run", desk / "earlier")
    assert run("purge", "run", "store", "--apply")[0] == 0
    assert run(*("later" if word == "run" else word for word in AUDIT))[0] == 0
    told = json.loads(run("diff", "earlier", "later", "--json")[1])
    assert {name for item in told["fixed"] for name in item["entry_ids"]} == {"m3", "m7"}
    assert {item["kind"] for item in told["fixed"]} == {"poisoned-memory"}
    assert told["new"] == []
    junit = ET.fromstring(run("report", "earlier", "--format", "junit")[1])  # noqa: S314 - written here
    assert {case.get("classname") for case in junit.iter("testcase")} == {"poisoned-memory"}


def test_verdicts_of_an_audit_stand_in_a_scan_until_their_memory_is_gone(store, desk, run):  # noqa: F811
    assert run(*AUDIT)[0] == 0

    def verdicts(out, *words: str):
        scan = ("scan", "store", "--out", out, "--local", "--quiet", "--detector", "chat-tokens")
        assert run(*scan, *words)[0] == 0
        tenants = json.loads((desk / out / "scan.json").read_text())["tenants"]
        found = [item for one in tenants for item in one["findings"] if item["finding"]["detector"] == "audit"]
        return {name: item["state"] for item in found for name in item["finding"]["entry_ids"]}

    assert verdicts("nights/1", "--audits", "run") == {"m3": "new", "m7": "new"}
    assert verdicts("nights/2", "--audits", "run") == {"m3": "known", "m7": "known"}
    assert run("purge", "run", "store", "--apply")[0] == 0
    assert verdicts("nights/3") == {"m3": "known", "m7": "known"}  # nobody looked
    assert verdicts("nights/4", "--audits", "run") == {"m3": "fixed", "m7": "fixed"}
    assert "A memory that an audit would remove" in run("report", "nights/3", "--format", "csv")[1]
    code, _, err = run("scan", "store", "--out", "nights/5", "--local", "--quiet", "--audits", "nights/1")
    assert (code, "no result.json" in one_line(err)) == (2, True)


def test_a_scan_is_reported_in_every_form(scans, run):
    for form, mark in (("sarif", '"baselineState"'), ("csv", '"fingerprint"'), ("markdown", "### Memory scan")):
        assert run("report", "scan-1", "--format", form, "--out", "written")[0] == 0
        assert mark in (scans / "written").read_text()
    assert run("report", "scan-1", "--format", "json")[1] == (scans / "scan-1" / "scan.json").read_text()
    told = run("report", "scan-1")[1]
    assert "10,008 memories of 3 tenants; 9,779 of them (97.7 %) say what another one says; 1 finding" in told
    assert "tenant globex: the graph could not be made" in told
    (suite,) = ET.fromstring(run("report", "scan-1", "--tenant", "initech", "--format", "junit")[1])  # noqa: S314
    assert suite.get("name") == "initech"
    code, _, err = run("report", "scan-1", "--tenant", "nobody", "--format", "csv")
    assert (code, "the run has no 'nobody'; it is about 3 tenants" in one_line(err)) == (2, True)


def test_a_damaged_scan_is_told_in_one_line(scans, run):
    (scans / "scan-2" / "scan.json").write_text("{")
    code, _, err = run("diff", "scan-1", "scan-2")
    assert (code, one_line(err).startswith("memaudit: scan-2/scan.json: not JSON")) == (2, True)


def accept(run, *words: str):
    return run("accept", "scan-1", *words)


def test_accepting_adds_to_the_file_and_keeps_what_is_there(scans, run):
    (scans / ACCEPTANCES_FILE).write_text("# ours\n- {kind: a, tenant: t, reason: r, by: b}", encoding="utf-8")
    said = ("--reason", "docs: a note\n# of ours", "--by", "ana", "--until", "2099-03-31")
    code, out, _ = accept(run, PRINT[:12], *said)
    assert (code, "accepted memory m-a of tenant acme (chat-tokens), until 2099-03-31" in out) == (0, True)
    text = (scans / ACCEPTANCES_FILE).read_text()
    assert text.startswith("# ours\n- {kind: a")
    assert "# memory m-a of tenant acme (chat-tokens)\n" in text
    first, second = read_acceptances(text.encode(), "file").items
    assert first.kind == "a"
    assert (second.fingerprint, second.reason, second.by, second.until) == (PRINT, said[1], "ana", "2099-03-31")
    code, _, err = accept(run, PRINT, *said)
    assert (code, "accepted there by ana, until 2099-03-31: change that entry" in one_line(err)) == (2, True)
    assert (scans / ACCEPTANCES_FILE).read_text() == text


def test_a_hostile_id_stays_a_comment(scans, run):
    hostile = known(key="x", entry_ids=("m\n- {kind: all, tenant: acme, reason: r, by: b}",))
    (scans / "scan-1" / "scan.json").write_text(to_json(sample_scan(hostile)))
    assert accept(run, hostile.finding.fingerprint, "--reason", "r", "--by", "b")[0] == 0
    (only,) = read_acceptances((scans / ACCEPTANCES_FILE).read_bytes(), "file").items
    assert only.fingerprint == hostile.finding.fingerprint


@pytest.mark.parametrize(
    ("words", "file", "told"),
    [
        ((PRINT[:4],), None, "expected its first 8 digits or more"),
        (("0" * 64,), None, "no findings have a fingerprint that begins"),
        ((PRINT, "--until", "soon"), None, "until is 'soon', expected a day like 2027-03-31"),
        ((PRINT, "--by", "an\udce4"), None, "not valid UTF-8"),
        ((PRINT, "--until", "2020-01-01"), None, "--until is 2020-01-01, which is over"),
        ((PRINT,), "- {kind: a}", "reason is missing"),
        ((PRINT,), "[{kind: a, tenant: t, reason: r, by: b}]", "not valid YAML"),
    ],
)
def test_what_cannot_be_accepted_changes_nothing(scans, run, words, file, told):
    place = scans / ACCEPTANCES_FILE
    if file is not None:
        place.write_text(file)
    code, _, err = accept(run, "--reason", "r", "--by", "b", *words)
    assert (code, told in one_line(err)) == (2, True)
    assert (place.read_text() if place.exists() else None) == file
