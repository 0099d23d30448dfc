"""`memaudit vacuum` as a user meets it: the text of what was forgotten is gone afterwards, and not before."""

from __future__ import annotations

import json
import os

import pyarrow.parquet as pq
import pytest

from memory_audit.jobs.cli.maintenance import retention_ms
from memory_audit.snapshot.layout import hold

DAY_MS = 86_400_000


@pytest.fixture
def store(folder, run, set_up):
    """A store out of which m1 was forgotten just now."""
    rows = [{"entry_id": f"m{n}", "request": "?", "response": f"secret {n}"} for n in range(3)]
    (folder / "memories.jsonl").write_text("\n".join(map(json.dumps, rows)))
    set_up(("keys", "new"), ("import", "jsonl:memories.jsonl", "store", "--tenant", "acme"))
    words = ("forget", "store", "m1", "--tenant", "acme", "--reason", "x", "--backbone", "none", "--embedder", "none")
    code, out, _ = run(*words, "--apply")
    assert code == 0
    assert "older versions still hold the text of what was removed" in out
    return folder / "store"


def texts(store):
    return {text for path in store.rglob("*.parquet") if "data" in path.parts
            for text in pq.read_table(path).column("response").to_pylist()}  # fmt: skip


def test_what_was_forgotten_is_on_disk_until_it_is_erased(store, run):
    assert "secret 1" in texts(store)
    code, out, _ = run("vacuum", "store", "--keep", "0d")
    assert (code, "would erase 1 version" in out) == (0, True)
    assert "secret 1" in texts(store)
    code, out, _ = run("vacuum", "store", "--keep", "0d", "--apply")
    assert (code, "version 3 published, with the same memories" in out) == (0, True)
    assert texts(store) == {"secret 0", "secret 2"}
    code, out, _ = run("verify", "store", "--deep", "--quiet")
    assert (code, "no part of any version" in out) == (0, False)


def test_versions_are_kept_for_a_week_where_nothing_is_said(store, run):
    code, out, _ = run("vacuum", "store", "--apply")
    assert (code, "nothing to erase" in out) == (0, True)
    assert "secret 1" in texts(store)
    assert json.loads(run("vacuum", "store", "--json")[1])["files"] == []


def test_older_versions_are_not_erased_where_the_newest_is_damaged(store, run):
    newest = max((store / "data").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(b"damaged")
    before = sorted(store.rglob("*"))
    assert run("vacuum", "store", "--keep", "0d", "--apply")[0] == 4
    assert sorted(store.rglob("*")) == before


@pytest.mark.parametrize("keep", ["", "7", "-1d", "1.5d", "7 d", "\u0667d", "100000d", "d"])
def test_a_time_that_cannot_be_meant_is_exit_2(store, run, keep):
    code, _, err = run("vacuum", "store", f"--keep={keep}", "--apply")
    assert (code, "expected days or hours like" in err) == (2, True)
    assert "secret 1" in texts(store)


def test_times_are_days_or_hours():
    assert [retention_ms(text) for text in ("0d", "36h", "7d")] == [0, DAY_MS * 3 // 2, 7 * DAY_MS]


def test_a_dry_run_names_the_files(store, run):
    plan = json.loads(run("vacuum", "store", "--keep", "0d", "--json")[1])["files"]
    assert 0 < len(plan) <= 10
    lines = run("vacuum", "store", "--keep", "0d")[1].splitlines()
    assert [line.strip() for line in lines[1:-1]] == plan
    assert "manifests/1.json" in plan


def test_a_dry_run_names_ten_of_many_files(store, run):
    for number in range(1_011):
        left = store / "scratch" / f".{number:024x}.part"
        left.write_bytes(b"half")
        os.utime(left, (0, 0))
    _, out, _ = run("vacuum", "store", "--keep", "0d")
    lines = [line for line in out.splitlines() if line.startswith("  ")]
    files = json.loads(run("vacuum", "store", "--keep", "0d", "--json")[1])["files"]
    assert [line.strip() for line in lines] == [*files[:10], f"and {len(files) - 10:,} more: --json names them"]


def test_a_vacuum_beside_a_command_that_writes_to_the_store_is_exit_3_and_erases_nothing(store, run, monkeypatch):
    monkeypatch.setattr("memory_audit.snapshot.layout.VACUUM_WAITS_S", 0)
    (store / "scratch" / ".0123456789abcdef01234567.part").write_bytes(b"half")
    before = sorted(store.rglob("*"))
    with hold(store):
        code, out, err = run("vacuum", "store", "--keep", "0d", "--apply")
        assert (code, out) == (3, "")
        assert "another command is at work in store/scratch: start again when it is done" in err
        assert run("vacuum", "store", "--keep", "0d")[0] == 0  # a dry run waits for nobody
    assert sorted(store.rglob("*")) == before
    assert run("vacuum", "store", "--keep", "0d", "--apply")[0] == 0
    assert list((store / "scratch").iterdir()) == []
    assert (store / "scratch").stat().st_mode & 0o007 == 0  # who may only read the store cannot hold it


def test_what_stays_is_said_and_is_exit_3(store, run, monkeypatch):
    monkeypatch.setattr("memory_audit.provenance.folder_lock.OF_ONE_MACHINE", frozenset())
    for number in range(2):
        (store / "scratch" / f".{number:024x}.part").write_bytes(b"half")
    told = (
        f"2 files stay that may hold removed text: scratch/.{0:024x}.part (it is younger than a day: a command on "
        "another machine may be about to publish it); and 1 more: --json names them"
    )
    code, out, _ = run("vacuum", "store", "--keep", "0d")
    assert (code, told in out.splitlines()) == (0, True)
    code, out, err = run("vacuum", "store", "--keep", "0d", "--apply")
    assert (code, err) == (3, f"memaudit: {told}; then start the same command again\n")
    assert "version 3 published, with the same memories" in out
    assert "secret 1" not in texts(store)
    code, out, _ = run("vacuum", "store", "--keep", "0d", "--apply", "--json")
    assert (code, list(json.loads(out)["stays"])) == (3, [f"scratch/.{number:024x}.part" for number in range(2)])


def test_a_vacuum_with_nothing_to_erase_publishes_nothing(store, run):
    for version in (3, None, None):
        code, out, _ = run("vacuum", "store", "--keep", "0d", "--apply", "--json")
        assert (code, json.loads(out)["version"]) == (0, version)
    code, out, _ = run("vacuum", "store", "--keep", "0d", "--apply")
    assert (code, out) == (0, "nothing to erase: what was replaced longer than 0d ago left no file in store\n")
    assert sorted(path.name for path in (store / "manifests").iterdir()) == ["2.json", "3.json"]


def test_a_store_in_the_folder_at_hand_leaves_keys_and_events_alone(folder, run):
    (folder / "memories.jsonl").write_text(json.dumps({"entry_id": "m1", "request": "?", "response": "!"}))
    assert run("keys", "new")[0] == 0
    assert run("import", "jsonl:memories.jsonl", ".", "--tenant", "acme")[0] == 0
    mine = [path for path in folder.rglob("*") if path.is_file()]
    for path in mine:
        os.utime(path, (0, 0))
    left = folder / "scratch" / ".0123456789abcdef01234567.part"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    code, out, _ = run("vacuum", ".", "--apply")
    assert (code, "erased what interrupted commands left: 1 file, 4 bytes" in out) == (0, True)
    assert not left.exists()
    assert all(path.is_file() for path in mine)
    assert run("verify", ".", "--quiet")[0] == 0
