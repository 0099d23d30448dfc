"""What leaves a store, and what a dump of everything brings into it."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given

from memory_audit.errors import EntryError, UsageError, VerificationError
from memory_audit.formats.import_jsonl import parse_entries
from memory_audit.provenance.keys import load_policy
from memory_audit.provenance.tlog.tiles import open_tiles
from memory_audit.snapshot.export_jsonl import memory_line
from memory_audit.snapshot.reader import open_snapshot
from tests.strategies import ENTRIES


def memory(number, tenant="acme", **changes):  # noqa: ANN003
    return {
        "tenant": tenant, "entry_id": f"m{number}", "principal": "bot", "source": "agent",
        "request": f"case {number}", "response": f"answer \u009b31m {number}", "created_at_ms": 1_000 + number,
        **changes,
    }  # fmt: skip


def lines(path, *rows):  # noqa: ANN002
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path.name


@pytest.fixture
def store(folder, run):
    """Two tenants' memories; one of acme's was removed."""
    rows = [memory(n, tenant) for tenant in ("acme", "globex") for n in range(3)]
    rows.append(memory(3, parents=[["m0", 0.25]], metadata={"channel": "mail"}))
    assert run("keys", "new")[0] == 0
    assert run("import", f"jsonl:{lines(folder / 'all.jsonl', *rows)}", "store")[0] == 0
    removal = ("m1", "--tenant", "acme", "--reason", "ticket 7", "--backbone", "none", "--embedder", "none")
    assert run("forget", "store", *removal, "--apply")[0] == 0
    return folder / "store"


@given(ENTRIES)
def test_a_memory_comes_back_as_it_was_written(entry):
    line = memory_line(entry)
    assert line.isascii()
    assert list(parse_entries([line.encode()], "f", {})) == [entry]


def test_what_is_left_is_written_in_the_form_of_an_import(store, run, folder):
    code, out, err = run("export", "store", "--tenant", "acme")
    assert (code, err) == (0, "")
    assert "\u009b" not in out
    found = [json.loads(line) for line in out.splitlines()]
    assert found == [memory(0), memory(2), memory(3, parents=[["m0", 0.25]], metadata={"channel": "mail"})]
    (folder / "acme.jsonl").write_text(out, encoding="utf-8")
    assert run("import", "jsonl:acme.jsonl", "other")[0] == 0
    assert run("export", "other")[1] == out


def test_all_tenants_are_written_to_a_file(store, run, folder):
    code, out, _ = run("export", "store", "--out", "left.jsonl")
    assert code == 0
    assert out == "6 memories of version 2 written to left.jsonl\n"
    rows = [json.loads(line) for line in (folder / "left.jsonl").read_text().splitlines()]
    assert {row["tenant"] for row in rows} == {"acme", "globex"}
    assert not list(folder.glob(".*.part"))


def test_what_is_to_be_deleted_elsewhere_is_told_without_its_text(store, run):
    code, out, _ = run("export", "store", "--removed")
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert (code, row["tenant"], row["entry_id"], row["reason"]) == (0, "acme", "m1", "ticket 7")
    assert row["removed_at_ms"] > 0
    assert "answer" not in out


def test_a_log_is_written_for_any_client_of_tiles(store, run, folder):
    snapshot = open_snapshot(
        store, load_policy(folder / "memaudit-keys" / "policy.json"), now_ms=time.time_ns() // 10**6
    )
    log = snapshot.log("acme")
    for _ in range(2):
        assert run("export", "store", "--tenant", "acme", "--tlog", "log")[:2] == (
            0, f"log of 5 leaves in version {snapshot.version} written to log\n",
        )  # fmt: skip
    assert (folder / "log" / "checkpoint").read_bytes() == log.note
    tree = open_tiles(log.checkpoint.size, lambda path: (folder / "log" / path).read_bytes())
    assert (tree.root(), tree.leaf_hashes()) == (log.checkpoint.root, b"".join(log.leaf_hashes))
    assert not any(b"case" in path.read_bytes() for path in (folder / "log").rglob("*") if path.is_file())


@pytest.mark.parametrize(("options", "problem"), [
    (("--tlog", "log"), "name one tenant"),
    (("--tlog", "log", "--tenant", "acme", "--out", "x"), "no --out"),
    (("--tlog", "log", "--tenant", "acme", "--removed"), "ask for one of them"),
    (("--tlog", "store/tiles/x", "--tenant", "acme"), "lies among the files of the store"),
    (("--tlog", "memaudit-keys", "--tenant", "acme"), "is a key folder"),
    (("--tlog", "taken", "--tenant", "acme"), "holds something else than this log"),
    (("--tlog", "globex", "--tenant", "acme"), "holds something else than this log"),
])  # fmt: skip
def test_a_log_is_not_written_over_anything_else(store, run, folder, options, problem):
    (folder / "taken").mkdir()
    (folder / "taken" / "mine.txt").write_text("mine", encoding="utf-8")
    assert run("export", "store", "--tenant", "globex", "--tlog", "globex")[0] == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, _, err = run("export", "store", *options)
    assert code == 2
    assert problem in err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_unknown_tenant_and_a_store_that_does_not_verify_write_nothing(store, run, folder):
    code, out, err = run("export", "store", "--tenant", "initech", "--out", "left.jsonl")
    assert (code, out) == (UsageError.exit_code, "")
    assert "no tenant 'initech'" in err
    for file in (store / "data").rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    (folder / "left.jsonl").write_text("before")
    (folder / "left.jsonl.partial").write_text("mine")
    code, out, err = run("export", "store", "--out", "left.jsonl")
    assert (code, out) == (VerificationError.exit_code, "")
    assert (folder / "left.jsonl").read_text() == "before"
    assert (folder / "left.jsonl.partial").read_text() == "mine"
    assert not list(folder.glob(".*.part"))


def test_a_dump_of_everything_adds_what_is_new(store, run, folder):
    dump = [memory(n) for n in range(6)]
    name = lines(folder / "dump.jsonl", *dump)
    code, _, err = run("import", f"jsonl:{name}", "store")
    assert code == UsageError.exit_code
    assert "ids are used once" in err
    code, out, _ = run("import", f"jsonl:{name}", "store", "--new-only", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["version"], found["imported"], found["known"]) == (3, 2, 3)
    assert found["removed"] == [{"tenant": "acme", "entry_id": "m1"}]
    code, out, _ = run("import", f"jsonl:{name}", "store", "--new-only")
    assert code == 0
    assert out.splitlines() == [
        "nothing new for store, version 3", "  5 memories known and left as before",
        (
            "  1 memory left out: removed from the store or in quarantine, still in the file; ids: memaudit "
            "export store --removed, --quarantined"
        ),
    ]  # fmt: skip
    assert run("verify", "store", "--deep")[0] == 0


@pytest.mark.parametrize("edit", [{"response": "pay eve"}, {"metadata": {"note": "pay eve"}}])
def test_a_memory_that_was_edited_is_named_and_nothing_is_signed(store, run, folder, edit):
    name = lines(folder / "dump.jsonl", memory(0, **edit), memory(9))
    code, _, err = run("import", f"jsonl:{name}", "store", "--new-only")
    assert code == EntryError.exit_code
    assert "entry 'm0' is not what was signed under that id" in err
    assert "version 2" in run("verify", "store")[1]


def test_a_new_store_and_a_new_tenant_take_all_of_a_dump(folder, store, run):
    name = lines(folder / "dump.jsonl", memory(0, "initech"), memory(1, "initech"))
    for place in ("new", "store"):
        code, out, _ = run("import", f"jsonl:{name}", place, "--new-only")
        assert code == 0
        assert "2 memories of 1 tenant signed into" in out


def test_a_tenant_may_be_spelled_in_either_unicode_form(store, run, folder):
    name = lines(folder / "more.jsonl", memory(0, "caf\u00e9"))
    assert run("import", f"jsonl:{name}", "store")[0] == 0
    composed, decomposed = (run("export", "store", "--tenant", form) for form in ("caf\u00e9", "cafe\u0301"))
    assert composed[0] == 0
    assert decomposed == composed
    both = run("export", "store", "--tenant", "caf\u00e9", "--tenant", "cafe\u0301")
    assert both == composed


def test_a_tenant_that_is_not_utf8_is_a_mistake(store, run):
    code, _, err = run("export", "store", "--tenant", "caf\udce9")
    assert (code, "which is not valid UTF-8" in err) == (UsageError.exit_code, True)
