"""LangGraph in PostgreSQL: what the real one wrote is read without a trace, and emptied of what was found."""

from __future__ import annotations

import json

import pytest

from tests.unit.jobs.connect.conftest import agent, needs
from tests.unit.jobs.connect.test_langgraph import AUDIT, BOB, ODD, POISON

TABLES = ("store", "store_vectors", "checkpoints", "checkpoint_blobs", "checkpoint_writes")


@pytest.fixture(scope="session")
def written(postgres):
    """The name of a database of  ten memories, one of them poison, and two threads, one of which recalled it."""
    needs("langgraph/checkpoint/postgres")
    url = postgres.new()
    with agent("langgraph_agent.py", url) as langgraph:
        langgraph(
            *(("put", {"namespace": BOB, "key": f"k{n}", "value": {"text": f"a calm note number {n}", "n": n}})
              for n in range(8)),
            ("put", {"namespace": ["users/x%", "desk"], "key": ODD, "value": {"kind": "fact", "said": [1, "two"]}}),
            ("say", {"thread": "calm", "text": "a calm note"}),
            ("put", {"namespace": BOB, "key": "p", "value": {"text": POISON, "from": "chat"}}),
            ("say", {"thread": "poisoned", "text": "refunds?"}),
        )  # fmt: skip
    with postgres.connect(url) as connection:
        connection.execute("UPDATE store SET expires_at = '2001-01-01', ttl_minutes = 1 WHERE key = 'k0'")
        connection.execute("CREATE TABLE of_the_agent (a int)")
    return url.partition("?")[0].rpartition("/")[2]


@pytest.fixture
def url(postgres, written):
    return postgres.new(template=written)


@pytest.fixture
def desk(lay_desk):
    return lay_desk("namespace=users.bob", "users.bob/p", "users.bob/k1")


def test_it_is_read_and_no_row_of_it_changes_nor_any_expiry(desk, run, url, postgres):
    before = postgres.rows(url, *TABLES)
    code, out, err = run("import", f"langgraph:{url}", "store", "--json")
    assert (code, json.loads(out)["imported"]) == (0, 10), err
    assert postgres.rows(url, *TABLES) == before
    entries = {entry["entry_id"]: entry for entry in map(json.loads, run("export", "store")[1].splitlines())}
    assert entries["users.bob/p"]["response"] == POISON
    assert entries["users.bob/p"]["metadata"] == {"from": "chat"}
    assert json.loads(entries[f"users%2Fx%25.desk/{ODD}"]["response"]) == {"kind": "fact", "said": [1, "two"]}


def test_what_was_found_is_taken_out_of_store_vectors_and_threads(desk, run, url):
    source = f"langgraph:{url}"
    assert run("import", source, "store")[0] == 0
    assert run(*AUDIT)[0] == 0
    with agent("langgraph_agent.py", url) as langgraph:
        keys, state = langgraph(("search", {}), ("state", {"thread": "poisoned"}))
        assert "POISON" in str(state)
        code, out, err = run(
            "purge", "run", "store", "--to", source, "--apply", "--backup-to", "backup.pub", "--erase", "--json"
        )  # while the agent has it open
        assert code == 0, out + err
        receipt = json.loads(out)["withdrawal"]
        assert receipt["grades"]["noLongerRetrievable"]
        held = {layer["name"]: (layer["heldBefore"] > 0, layer["heldAfter"]) for layer in receipt["layers"]}
        assert held == dict.fromkeys(("memories", *TABLES[1:]), (True, 0))
        assert all(layer["othersUnchanged"] for layer in receipt["layers"])
        got, after, found, poisoned, calm = langgraph(
            ("get", {"namespace": BOB, "key": "p"}), ("search", {}), ("search", {"query": "refunds"}),
            ("state", {"thread": "poisoned"}), ("state", {"thread": "calm"}),
        )  # fmt: skip
    assert got is None
    assert after == [key for key in keys if key != "p"]
    assert "p" not in found
    assert poisoned == {}
    assert calm["said"] == "a calm note"


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ALTER TABLE store ADD COLUMN a int", "table 'store'"), ("DROP TABLE store CASCADE", "no table `store`"),
        ("ALTER TABLE checkpoint_blobs DROP COLUMN type", "table 'checkpoint_blobs'"),
    ],
)  # fmt: skip
def test_another_schema_is_refused_by_name(run, url, postgres, change, told):
    with postgres.connect(url) as connection:
        connection.execute(change)
    code, _, err = run("import", f"langgraph:{url}", "store")
    assert (code, told in err) == (2, True), err
