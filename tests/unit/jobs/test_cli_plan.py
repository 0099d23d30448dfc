"""`memaudit plan`, `audit --plan`, and a budget of replays on the command line."""

from __future__ import annotations

import json
import socket

import pytest

from tests.unit.jobs.test_cli import AUDIT, CONFIG, bytes_of, event, memories, never, one_line, write_lines


@pytest.fixture
def desk(folder, set_up):
    """A folder with a store and its events."""
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    write_lines(folder / "events.jsonl", [event(), event("p1", harm={"label": "benign"}, query="what about case 1")])
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store"))
    return folder


def test_a_command_names_what_its_budget_left_out(desk, run):
    code, out, err = run(*AUDIT, "--max-run-replays", "5")
    assert (code, err.splitlines()[0]) == (3, "tenant acme: beyond the budget of 5 replays: event e1")
    assert err.splitlines()[-1].endswith("with a larger --max-run-replays for those beyond it")
    assert "Tenant acme: not audited: beyond the budget of 5 replays: event e1" in out
    assert run("status", "run")[1].splitlines() == ["sealed", "beyond its budget: acme: event e1"]
    code, out, _ = run(*AUDIT, "--max-run-replays", "5", "--json", "--apply")
    (found,) = json.loads(out)["tenants"]
    assert (code, found["beyond_budget"], json.loads(out)["purged"]) == (3, ["event e1"], None)
    assert run(*AUDIT, "--max-run-replays", "100")[0] == 0
    assert run("status", "run")[1] == "sealed\n"
    assert json.loads((desk / "run" / "result.json").read_text())["tenants"][0]["beyond_budget"] == []


PLAN = ("plan", "store", "--events", "events.jsonl")
EDGE = '{"tenant": "acme", "child": "m7", "parent": "m3", "weight": 0.83, "evidence": {"embedding": 0.71}}'


@pytest.fixture
def rates(folder):
    """Rates that earlier audits on this machine measured."""
    known = {
        "backbone fake": {"units": 40.0, "seconds": 20.0}, "embedder fake": {"units": 900.0, "seconds": 3.0},
        "nli fake": {"units": 22.0, "seconds": 4.0},
    }  # fmt: skip
    path = folder / "state" / "memaudit" / "rates.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": "memaudit rates v1", "machines": {socket.gethostname(): known}}))
    return path


def bounds(least, typical, most):
    return {"least": least, "typical": typical, "most": most}


def test_a_plan_gives_bounds_and_changes_nothing(desk, run, rates):
    before = bytes_of(desk / "store")
    code, out, _ = run(*PLAN, "--json")
    made = json.loads(out)
    (acme,) = made["tenants"]
    assert (code, acme["tenant"], acme["events"], acme["memories"]) == (0, "acme", 1, 12)
    assert acme["replays"] == bounds(3, 18, None)
    assert acme["pairs"] == bounds(0, 55, 55)
    assert acme["texts"] == bounds(5, 27, 27)
    seconds = bounds(round(3 / 2 + 5 / 300, 1), round(18 / 2 + 27 / 300 + 55 / 5.5, 1), None)
    assert acme["seconds"] == made["total"]["seconds"] == seconds
    assert bytes_of(desk / "store") == before
    assert {path.name for path in desk.iterdir()}.isdisjoint({"run", "plan.json"})
    out = run(*PLAN)[1]
    assert "3-18-any" in out
    assert "2s-19s-any" in out
    assert f"nli fake on {socket.gethostname()}: 5.5 pairs a second" in out


def test_what_an_audit_takes_is_within_its_plan(desk, run):
    planned = json.loads(run(*PLAN, "--json", "--max-replays", "30")[1])["total"]
    counters = json.loads(run(*AUDIT, "--json", "--max-replays", "30")[1])["counters"]
    assert planned["replays"]["least"] <= counters["replays"] <= planned["replays"]["most"] == 36
    assert planned["pairs"]["least"] <= counters["nli_pairs"] <= planned["pairs"]["most"]


def test_the_least_is_what_an_audit_takes_that_reproduces_nothing(desk, run):
    write_lines(desk / "calm.jsonl", [{**memory, "response": "a calm answer"} for memory in memories()])
    run("import", "jsonl:calm.jsonl", "calm")
    planned = json.loads(run("plan", "calm", *PLAN[2:], "--json")[1])["total"]
    found = json.loads(run("audit", "calm", *AUDIT[2:], "--json")[1])
    assert found["tenants"][0]["tally"]["verdicts"] == {"not reproduced": 1}
    assert found["counters"]["replays"] == planned["replays"]["least"] == 3
    assert found["counters"]["nli_pairs"] == planned["pairs"]["least"] == 0


def test_what_a_run_knows_is_taken_off(desk, run):
    run(*AUDIT)
    again = json.loads(run(*PLAN, "--reuse", "run", "--json")[1])["total"]
    assert again["texts"] == bounds(0, 0, 0)
    assert again["pairs"]["least"] == 0
    assert again["replays"] == bounds(0, 1, None)
    write_lines(desk / "events.jsonl", [event("e2")])  # another run: its replays are its own
    other = json.loads(run(*PLAN, "--reuse", "run", "--json")[1])["total"]
    assert other["replays"] == bounds(2, 16, None)
    assert other["texts"] == bounds(0, 0, 0)


def test_a_budget_bounds_the_plan(desk, run):
    made = json.loads(run(*PLAN, "--max-run-replays", "10", "--json")[1])
    assert made["total"]["replays"] == bounds(3, 10, 10)
    assert made["tenants"][0]["replays"] == bounds(3, 18, None)
    assert "the run ends after 10 replays" in run(*PLAN, "--max-run-replays", "10")[1]


def test_without_a_measured_rate_there_is_no_time(desk, run):
    out = run(*PLAN)[1]
    assert "?-?-?" in out
    assert "no rate known yet; an audit there measures it" in out


def test_an_audit_keeps_how_fast_models_were(desk, run, monkeypatch):
    monkeypatch.setattr("memory_audit.jobs.executors.rates.LEAST_SECONDS", 0.0)
    run(*AUDIT)
    made = json.loads(run(*PLAN, "--json")[1])
    assert all(rate["per_second"] > 0 for rate in made["rates"].values())
    assert made["total"]["seconds"]["typical"] is not None
    assert json.loads(run(*PLAN, "--address", "10.0.0.9:6379", "--json")[1])["total"]["seconds"]["least"] is None


@pytest.mark.parametrize("damage", ["", "[]", '{"format": "memaudit rates v1", "machines": 3}', "\x00"])
def test_a_damaged_file_of_rates_is_none(desk, run, rates, damage):
    rates.write_text(damage)
    assert run(*PLAN)[0] == 0
    assert run(*AUDIT)[0] == 0


def test_an_audit_goes_by_the_plan_that_was_made_for_it(desk, run):
    assert run(*PLAN, "--out", "plan.json")[0] == 0
    assert run(*AUDIT, "--plan", "plan.json")[0] == 0


def import_more(desk, run):
    write_lines(desk / "more.jsonl", [{**memories()[0], "entry_id": "m99"}])
    run("import", "jsonl:more.jsonl", "store")


def plan_with_another_version(desk, _run):
    made = json.loads((desk / "plan.json").read_text())
    (desk / "plan.json").write_text(json.dumps({**made, "of": {**made["of"], "version": "0.0.1"}}))


CHANGES = {
    "configuration": lambda desk, _: (desk / "memaudit.yaml").write_text(CONFIG + "alpha: 0.5\n"),
    "budget of replays": lambda desk, _: (desk / "memaudit.yaml").write_text(CONFIG + "max_run_replays: 90\n"),
    "events": lambda desk, _: write_lines(desk / "events.jsonl", [event()]),
    "snapshot": import_more,
    "version": plan_with_another_version,
    "edges": lambda desk, _: (desk / "edges.jsonl").write_text(EDGE),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_stale_plan_is_refused_and_nothing_is_begun(desk, run, what):
    assert run(*PLAN, "--out", "plan.json")[0] == 0
    CHANGES[what](desk, run)
    edges = ("--edges", "edges.jsonl") if what == "edges" else ()
    code, _, err = run(*AUDIT, *edges, "--plan", "plan.json", start=never)
    assert (code, one_line(err)) == (5, f"memaudit: plan.json: the plan was made for another {what}; plan again\n")
    assert not (desk / "run").exists()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"format": "memaudit plan v2", "of": {}}', '{"format": "memaudit plan v1"}']
)
def test_what_is_no_plan_is_refused_in_one_line(desk, run, text):
    (desk / "plan.json").write_text(text)
    code, _, err = run(*AUDIT, "--plan", "plan.json", start=never)
    assert code == 2
    assert "plan.json" in one_line(err)


def test_a_tenant_that_cannot_be_audited_is_named_and_the_others_are_planned(desk, run):
    write_lines(desk / "more.jsonl", [{**memory, "tenant": "globex"} for memory in memories()])
    run("import", "jsonl:more.jsonl", "store")
    write_lines(desk / "events.jsonl", [event(), event("e2", tenant="globex", retrieved=["m99"])])
    code, out, _ = run(*PLAN, "--json")
    acme, globex = json.loads(out)["tenants"]
    assert (code, acme["failure"], acme["replays"]["least"]) == (0, None, 2)
    assert "m99" in globex["failure"]
    assert run(*PLAN)[0] == 0


def test_no_text_of_a_memory_is_in_a_plan(desk, run):
    _, out, _ = run(*PLAN, "--out", "plan.json", "--json")
    for text in (out, (desk / "plan.json").read_text()):
        assert not any(word in text for word in ("POISON", "calm", "printer"))
