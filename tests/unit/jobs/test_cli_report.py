"""`memaudit report` on a run of many tenants, on one of them, and on several nights; and the purge of such a run."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from memory_audit.report.html import FEW
from tests.unit.jobs.test_cli import AUDIT, CONFIG, event, memories, one_line, write_lines
from tests.whole import read_whole

TENANTS = FEW + 3
POISONED = "team-03"
IMPORT = ("import", "jsonl:memories.jsonl", "store")


def of(tenant, *, poisoned):
    """The memories of a tenant; the fakes react to the poison in two of them."""
    rows = [{**row, "tenant": tenant} for row in memories(6)]
    return [{**row, "response": row["response"] if poisoned else "a calm answer"} for row in rows]


@pytest.fixture
def desk(folder, set_up):
    """A store of many tenants, one of them poisoned, and an event of each."""
    names = [f"team-{number:02}" for number in range(TENANTS)]
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "memories.jsonl", [row for name in names for row in of(name, poisoned=name == POISONED)])
    write_lines(folder / "events.jsonl", [event(f"e-{name}", tenant=name) for name in names])
    set_up(("keys", "new"), IMPORT, AUDIT)
    return folder


def test_a_run_of_many_tenants_is_an_index_with_the_pages_of_those_that_need_a_person(desk, run):
    index = (desk / "run" / "report.html").read_text()
    (page,) = (desk / "run" / "report").iterdir()
    assert re.findall(r'<td><a href="(report/\d+\.html)">([\w-]+)</a>', index) == [(f"report/{page.name}", POISONED)]
    assert f"1 of {TENANTS} needs a person, listed first" in index
    seal = (desk / "run" / "seal.dsse.json").read_bytes()
    assert run(*AUDIT)[0] == 0  # a second start writes the same
    assert (desk / "run" / "seal.dsse.json").read_bytes() == seal


def test_all_pages_are_written_where_they_are_asked_for(desk, run):
    code, _, err = run("report", "run", "--format", "html")
    assert (code, f"{TENANTS} tenants have a page each: say where with --out" in one_line(err)) == (2, True)
    assert run("report", "run", "--format", "html", "--out", "out.html")[0] == 0
    assert len(list((desk / "out-tenants").iterdir())) == TENANTS
    assert (desk / "out.html").read_text().count('<td><a href="out-tenants/') == TENANTS


def test_one_tenant_is_shown_in_every_form(desk, run):
    code, out, _ = run("report", "run", "--tenant", POISONED, "--format", "json")
    found = json.loads(out)
    whole = next(tenant for tenant in read_whole(desk / "run").tenants if tenant.tenant == POISONED)
    assert (code, found["tenant"], len(found["scores"])) == (0, POISONED, len(whole.scores))
    assert {text["entry_id"] for text in found["texts"]} == set(whole.removal.removed) == {"m3"}
    assert "Tenant team-03" in (table := run("report", "run", "--tenant", POISONED)[1])
    assert "Tenant team-04" not in table
    page = run("report", "run", "--tenant", POISONED, "--format", "html")[1]
    assert page.count('<section class="tenant"') == 1
    sarif = json.loads(run("report", "run", "--tenant", POISONED, "--format", "sarif")[1])
    assert len(sarif["runs"][0]["results"]) == 1
    code, _, err = run("report", "run", "--tenant", "nobody")
    assert (code, f"the run has no 'nobody'; it is about {TENANTS} tenants" in one_line(err)) == (2, True)


def test_findings_that_were_changed_are_not_shown_and_not_purged(desk, run):
    (path,) = (desk / "run").glob("groups/*/findings/scores*")
    path.write_bytes(path.read_bytes()[:-1] + b"0")
    code, _, err = run("report", "run", "--tenant", POISONED)
    assert (code, "not the one that result.json states" in one_line(err)) == (2, True)
    code, _, err = run("purge", "run", "store", "--apply")
    assert (code, "changed since the audit sealed it" in one_line(err)) == (4, True)
    assert run(*AUDIT)[0] == 0
    assert run("purge", "run", "store", "--apply")[0] == 0


def test_a_purge_needs_no_findings(desk, run):
    for folder in (desk / "run").glob("groups/*/findings"):
        shutil.rmtree(folder)
    code, out, _ = run("purge", "run", "store", "--apply")
    assert (code, "removed team-03/m3" in out) == (0, True)


def nights(desk, run):
    """Audit, purge, bring the same text back under another id, and audit again; and a night before that."""
    runs = desk / "runs"
    runs.mkdir()
    for night in ("1", "2"):
        assert run(*("runs/" + night if word == "run" else word for word in AUDIT))[0] == 0
    assert run("purge", "runs/2", "store", "--apply")[0] == 0
    write_lines(desk / "back.jsonl", [{**of(POISONED, poisoned=True)[3], "entry_id": "m99"}])
    assert run("import", "jsonl:back.jsonl", "store")[0] == 0
    assert run(*("runs/3" if word == "run" else word for word in AUDIT))[0] == 0
    return runs


def test_nights_side_by_side_say_what_is_new_known_and_back(desk, run):
    nights(desk, run)
    code, out, _ = run("report", "runs", "--format", "json")
    found = json.loads(out)
    told = [(night["name"], night["new"], night["known"], night["back"], night["taken"]) for night in found["totals"]]
    assert (code, told) == (0, [("1", 1, 0, 0, 0), ("2", 0, 1, 0, 1), ("3", 0, 0, 1, 0)])
    (back,) = found["last"]
    assert (back["tenant"], back["entry_id"], back["as_id"], back["since"]) == (POISONED, "m99", "m3", 0)
    assert run("report", "runs/1", "runs/2", "runs/3", "--format", "json")[1] == out
    assert "The last night shows 1 memory in 1 tenant: 1 back." in run("report", "runs")[1]
    assert run("report", "runs", "--format", "html", "--out", "nights.html")[0] == 0
    assert '<span class="badge bad">1 back</span>' in (desk / "nights.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("report", "runs", "--format", "sarif"),
            "several nights have the forms table, html and json, and no --tenant",
        ),
        (
            ("report", "runs", "--tenant", POISONED),
            "several nights have the forms table, html and json, and no --tenant",
        ),
        (("report", "store"), "store: no run, and no finished run in it"),
        (("report", "run", "nowhere"), "nowhere: no result.json (no run there)"),
        (("report", "run", "--format", "pdf"), "--format is 'pdf', expected table or html or json or sarif or junit"),
    ],
)
def test_what_cannot_be_shown_is_told_in_one_line(desk, run, words, message):
    shutil.copytree(desk / "run", desk / "runs" / "1")
    code, _, err = run(*words)
    assert (code, message in one_line(err)) == (2, True)


def test_an_attestation_that_is_none_is_told_in_one_line(desk, run):
    shutil.copytree(desk / "run", desk / "runs" / "1")
    (desk / "runs" / "1" / "attestation.dsse.json").write_text("{}")
    code, _, err = run("report", "runs")
    assert (code, "attestation.dsse.json" in one_line(err)) == (2, True)
