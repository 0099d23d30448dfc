"""`memaudit plan`, `audit --plan`, and a budget of replays on the command line."""

from __future__ import annotations

import json

import pytest

from tests.unit.jobs.test_cli import AUDIT, CONFIG, event, memories, write_lines


@pytest.fixture
def desk(folder, set_up):
    """A folder with a store and its events."""
    (folder / "memaudit.yaml").write_text(CONFIG, encoding="utf-8")
    write_lines(folder / "memories.jsonl", memories())
    write_lines(folder / "events.jsonl", [event(), event("p1", harm={"label": "benign"}, query="what about case 1")])
    set_up(("keys", "new"), ("import", "jsonl", "memories.jsonl", "store"))
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
