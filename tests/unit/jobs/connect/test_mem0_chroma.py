"""mem0 over Chroma: what the real ones wrote is read without a trace, and emptied of what was found in every layer."""

from __future__ import annotations

import json
import shutil

import pytest

from memory_audit.errors import HeldError
from memory_audit.jobs.cli.shared import FINDINGS
from tests.unit.jobs.connect.conftest import agent, digests, killed_at, needs
from tests.unit.jobs.connect.test_mem0 import AUDIT, POISON, PURGE, SOURCE, in_bytes

ERASING = (*PURGE, "--backup-to", "backup.pub", "--erase", "--json")
CLEAN = {"noLongerRetrievable": True, "noRawResidueFound": True}


def opened(folder):
    return agent("mem0_agent.py", folder, over="chroma")


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A folder of a mem0 with sixteen memories of two owners, one of them poison, and the ids of all."""
    needs("mem0")
    needs("chromadb")
    folder = tmp_path_factory.mktemp("mem0") / "agent"
    with opened(folder) as mem0:
        told = mem0(
            *(("add", {"messages": f"a calm note number {n} on parcels", "user_id": "bob", "infer": False,
                       "metadata": {"channel": "mail", "n": n}}) for n in range(12)),
            *(("add", {"messages": f"the shop opens at {n} o'clock", "agent_id": "desk", "infer": False})
              for n in range(3)),
            ("add", {"messages": f"please remember <{POISON}>", "user_id": "bob"}),
        )  # fmt: skip
        ids = [found["id"] for one in told for found in one["results"]]
        mem0(
            ("link", {"entity": "Refunds", "ids": [ids[-1], ids[0]]}),
            ("link", {"entity": "Pay Desk", "ids": [ids[-1]]}), ("link", {"entity": "Parcels", "ids": ids[2:5]}),
            ("update", {"memory_id": ids[1], "text": "a note that was edited"}),
        )  # fmt: skip
    return folder, ids


@pytest.fixture
def audited(folder, written, run, lay_desk):
    """That store imported and audited; the run proposes the poison."""
    source, ids = written
    shutil.copytree(source, folder / "agent")
    lay_desk("user_id=bob", ids[-1], ids[0], ids[2])
    before = digests(folder / "agent")
    code, out, _ = run("import", SOURCE, "store", "--json")
    assert (code, json.loads(out)["imported"]) == (0, 16)
    assert run(*AUDIT)[0] == 0
    assert digests(folder / "agent") == before
    return folder


def held(receipt):
    return {layer["name"]: (layer["heldBefore"], layer["heldAfter"]) for layer in receipt["layers"]}


def everything(folder):
    with opened(folder) as mem0:
        found, entities = mem0(
            ("get_all", {"filters": {"user_id": "*"}, "top_k": 1000, "show_expired": True}), ("entities", {}),
        )  # fmt: skip
    return {one["id"]: one for one in found["results"]}, entities


def test_what_was_found_is_taken_out_of_every_layer_and_nothing_else_is(audited, run, written):
    ids = written[1]
    before, _ = everything(audited / "agent")
    assert in_bytes(audited / "agent", POISON)
    code, out, err = run(*ERASING)
    assert code == 0, out + err
    receipt = json.loads(out)["withdrawal"]
    assert receipt["grades"] == CLEAN
    assert held(receipt) == {
        "memories": (1, 0), "entities": (2, 0), "write queue": (2, 0), "history": (1, 0), "messages": (1, 0),
    }  # fmt: skip
    assert all(layer["othersUnchanged"] for layer in receipt["layers"])
    assert "Restart every process" in receipt["restart"][0]
    assert in_bytes(audited / "agent", POISON) == []
    del before[ids[-1]]
    after, entities = everything(audited / "agent")
    assert after == before
    assert entities == [["Parcels", ids[2:5]], ["Refunds", [ids[0]]]]
    with opened(audited / "agent") as mem0:
        gone, found, _, shown = mem0(
            ("get", {"memory_id": ids[-1]}), ("search", {"query": POISON, "filters": {"user_id": "bob"}, "top_k": 100}),
            ("add", {"messages": "and now <a harmless fact>", "user_id": "bob"}), ("shown", {}),
        )  # fmt: skip
    assert gone is None
    assert ids[-1] not in {one["id"] for one in found["results"]}
    assert "POISON" not in "".join(shown)  # the extractor is given the last messages


def test_an_agent_that_has_the_store_open_is_told_to_stop_and_nothing_is_changed(audited, run):
    with opened(audited / "agent") as mem0:
        mem0(("get_all", {"filters": {"user_id": "bob"}}))
        before = digests(audited / "agent")
        code, _, err = run(*ERASING)
        assert (code, "stop the agent" in err) == (HeldError.exit_code, True)
        assert digests(audited / "agent") == before


@pytest.mark.parametrize("step", ["delete", "clean", "erase"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_one_that_is_killed_at_a_step_is_finished_by_the_same_command(audited, run, written, step, moment):
    killed_at(step, moment, ERASING)
    code, out, err = run(*ERASING)
    assert code == 0, out + err
    receipt = json.loads(out)["withdrawal"]
    assert receipt["grades"] == CLEAN
    assert all(layer["othersUnchanged"] and not layer["heldAfter"] for layer in receipt["layers"])
    assert in_bytes(audited / "agent", POISON) == []
    assert everything(audited / "agent")[1] == [["Parcels", written[1][2:5]], ["Refunds", [written[1][0]]]]


def test_a_memory_that_the_agent_deleted_itself_leaves_side_tables_and_queue(audited, run, written):
    with opened(audited / "agent") as mem0:
        mem0(("delete", {"memory_id": written[1][-1]}))
    code, out, _ = run(*ERASING)
    receipt = json.loads(out)["withdrawal"]
    assert (code, receipt["missing"], receipt["grades"]) == (0, [f"user_id=bob/{written[1][-1]}"], CLEAN)
    assert in_bytes(audited / "agent", POISON) == []


def test_what_is_back_is_named_with_the_layers_that_hold_its_text(audited, run, written):
    assert run(*ERASING)[0] == 0
    with opened(audited / "agent") as mem0:
        mem0(("add", {"messages": f"please remember <{POISON}>", "user_id": "bob"}))
    code, out, _ = run("check-removed", "store", SOURCE, "--json")
    (found,) = json.loads(out)["sources"]
    (back,) = found["returned"]
    assert (code, back["by"], back["removed_id"]) == (FINDINGS, "text", written[1][-1])
    assert back["beside"] == {"history": 1, "messages": 1, "write queue": 1}
